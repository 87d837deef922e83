//! A plain simulator of one queue, first come, first served: the check of the engine's results under `fifo`, and the
//! measure of its speed (`heddle bench sim`).
//!
//! It is what one writes in an hour: a binary heap of events, of which each request has two, its arrival and its
//! departure. It knows no policies, no preemption and no costs, and measures only response times. Its random numbers
//! are the engine's, so that both give the same times to the nanosecond.

use crate::engine::{GAPS, SIZES};
use crate::workload::Gaps;
use crate::{Random, Scenario, SimError};
use heddle_core::Ns;
use heddle_metrics::Histogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Departure(Request),
}

/// A request in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    number: u64,
    arrived: Ns,
    service: Ns,
}

/// Returns the response times of the requests of `scenario` that count, if its CPUs served them in the order of their
/// arrival and nothing else cost time: only its CPUs, mix, open arrivals, load, seed, and numbers of requests are used.
///
/// ```
/// use heddle_sim::{Scenario, reference, run};
/// let scenario = Scenario::ideal("fifo", 4, "exp(10us)".parse().unwrap(), 0.8);
/// let scenario = Scenario { requests: 10_000, ..scenario };
/// assert_eq!(reference::fifo(&scenario).unwrap(), run(&scenario).unwrap().all.response);
/// ```
///
/// # Errors
/// [`SimError`] for arrivals that are not open, or an impossible rate.
pub fn fifo(scenario: &Scenario) -> Result<Histogram, SimError> {
    let mut gaps = Gaps::new(&scenario.arrivals, scenario.rate())?;
    let mut gap_numbers = Random::new(scenario.seed, GAPS);
    let mut sizes = Random::new(scenario.seed, SIZES);
    let warmup = (scenario.requests as f64 * scenario.warmup).round() as u64;
    let counted = warmup..warmup + scenario.requests;

    let mut events = BinaryHeap::from([Reverse((gaps.next(&mut gap_numbers), Event::Arrival))]);
    let mut waiting = VecDeque::new();
    let (mut idle, mut number) = (scenario.machine.cpus, 0);
    let mut responses = Histogram::new();
    while responses.count() < scenario.requests {
        let Some(Reverse((now, event))) = events.pop() else { break };
        match event {
            Event::Arrival => {
                let service = scenario.mix.sample(&mut sizes).1;
                waiting.push_back(Request { number, arrived: now, service });
                number += 1;
                events.push(Reverse((now + gaps.next(&mut gap_numbers), Event::Arrival)));
            }
            Event::Departure(request) => {
                idle += 1;
                if counted.contains(&request.number) {
                    responses.record(now - request.arrived);
                }
            }
        }
        if idle > 0
            && let Some(request) = waiting.pop_front()
        {
            idle -= 1;
            events.push(Reverse((now + request.service, Event::Departure(request))));
        }
    }
    Ok(responses)
}
