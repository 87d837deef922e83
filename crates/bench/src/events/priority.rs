//! SKQ's Figure 10: a client of high priority under full load.
//!
//! The GIS workload arrives at nearly the threads' capacity; in addition a client sends few light requests on
//! its own connections. Its waits are compared with those when it is alone, and the others' waits with a run
//! without its priority.

use super::loaded::{Sample, Trial};
use super::system::System;
use super::workload::{Demand, Workload};
use crate::steer::Dilation;
use heddle_core::Ns;
use heddle_load::{Arrival, Arrivals, Op};
use heddle_metrics::{Collector, Progress, Row};
use std::io;
use std::sync::atomic::AtomicBool;

/// The case in results.
pub(super) const CASE: &str = "priority";

/// Connections of the client.
const PROBES: usize = 4;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct PriorityOptions {
    /// The queue; without one there is nothing to measure.
    pub chief: Option<System>,
    /// The others' workload.
    pub workload: Workload,
    /// The others' share of the capacity: as high as waits remain finite, given what yielding costs.
    pub load: f64,
    /// The client's requests per second.
    pub rate: f64,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each run.
    pub duration: Ns,
    /// Seed of arrivals and weights.
    pub seed: u64,
}

impl PriorityOptions {
    /// Two hundred requests per second, with the others at nine tenths of the capacity.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> PriorityOptions {
        PriorityOptions {
            chief: System::chief(systems).cloned(),
            workload: Workload::gis(Dilation(20)),
            load: 0.9,
            rate: 200.0,
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 400 } else { 3_000 }),
            seed: 1,
        }
    }

    /// The variants: the queue with high priority for the client, without, and one epoll per thread.
    fn variants(&self) -> Vec<(System, bool)> {
        let queue = self.chief.iter().flat_map(|chief| [true, false].map(|h| (chief.clone(), h)));
        queue.chain([(System::PerThread, false)]).collect()
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * self.variants().len() as u64 * 2
    }

    /// The others' requests and the client's, which the generator counts as SETs; the others' longer ones are
    /// SCANs. `others` is the others' rate, 1/s.
    fn requests(
        &self,
        seed: u64,
        others: f64,
    ) -> (impl Iterator<Item = Arrival> + Send + use<>, Demand) {
        let own = self.workload.connections;
        let weights = self.workload.weights(seed);
        let times = weights.iter().map(|class| class.time);
        let demand = times.chain(std::iter::repeat_n(self.workload.light(), PROBES)).collect();
        let light: Vec<bool> = weights.iter().map(|class| class.op == Op::Get).collect();
        let mix = format!("get={others},set={}", self.rate).parse().expect("rates are weights");
        let named = move |arrival: Arrival| {
            let key = arrival.key as usize;
            match arrival.op {
                Op::Set => Arrival { key: (own + key % PROBES) as u64, ..arrival },
                _ if light[key] => arrival,
                _ => Arrival { op: Op::Scan, ..arrival },
            }
        };
        let arrivals = Arrivals::new(seed, others + self.rate, mix, own).map(named);
        (arrivals, Demand::ByConnection(demand))
    }
}

/// The name of a variant.
pub(super) fn name(system: &System, high: bool) -> String {
    if high { format!("{system} high") } else { system.to_string() }
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &PriorityOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        let mut samples = Vec::new();
        for (system, high) in options.variants() {
            let name = name(&system, high);
            let mut of = |what: &str, others: f64| {
                progress.step(&format!("priority, round {}, {what}: {name}", round + 1));
                measure(options, &system, high, others, options.seed + u64::from(round), stop)
            };
            let both = of("idle", 0.0).and_then(|idle| {
                Ok((idle, of("loaded", options.workload.capacity() * options.load)?))
            });
            match both {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                both => samples.push((name, high, both?)),
            }
        }
        let plain = options.chief.as_ref().map(|chief| name(chief, false));
        let plain = samples.iter().find(|(name, ..)| Some(name) == plain.as_ref());
        for (name, high, (idle, loaded)) in &samples {
            let without = plain.filter(|_| *high).map(|(_, _, (_, loaded))| loaded);
            add(&mut collect, name, idle, loaded, without);
        }
    }
    Ok(collect.into_rows())
}

fn measure(
    options: &PriorityOptions,
    system: &System,
    high: bool,
    others: f64,
    seed: u64,
    stop: &AtomicBool,
) -> io::Result<Sample> {
    let (arrivals, demand) = options.requests(seed, others);
    let trial = Trial {
        system,
        workload: &options.workload,
        beside: (PROBES, high),
        rate: others + options.rate,
        duration: options.duration,
    };
    trial.run(arrivals, demand, stop)
}

fn add(
    collect: &mut Collector,
    name: &str,
    idle: &Sample,
    loaded: &Sample,
    without: Option<&Sample>,
) {
    let p99 = |sample: &Sample, op| sample.latency(op).p99().0 as f64;
    let (alone, beside) = (p99(idle, Op::Set), p99(loaded, Op::Set));
    let mut add = |metric: &str, unit: &str, run| collect.add(name, CASE, metric, unit, run);
    add("probe_idle_p99_ns", "ns", idle.value(alone));
    add("probe_p99_ns", "ns", loaded.value(beside));
    add("probe_over_idle", "x", loaded.ratio(beside / alone.max(1.0), idle));
    add("others_light_p99_ns", "ns", loaded.value(p99(loaded, Op::Get)));
    if let Some(without) = without {
        let ratio = p99(loaded, Op::Get) / p99(without, Op::Get).max(1.0);
        add("others_over_without", "x", loaded.ratio(ratio, without));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_has_connections_of_its_own_and_light_requests() {
        let options = PriorityOptions::new(&System::all(), false);
        let (arrivals, demand) = options.requests(1, 20_000.0);
        let mut probes = 0;
        for request in arrivals.take(20_000) {
            let is_probe = request.key >= 200;
            assert_eq!(is_probe, request.op == Op::Set);
            assert!(request.key < 204);
            if request.op != Op::Scan {
                assert_eq!(demand.of(&request), Ns::from_us(200));
            }
            probes += u32::from(is_probe);
        }
        // 200 in 20,200: 198, and five standard deviations of 14.
        assert!((128..268).contains(&probes), "{probes}");
        let (alone, _) = options.requests(1, 0.0);
        assert!(alone.take(100).all(|request| request.op == Op::Set));
    }
}
