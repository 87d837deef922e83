//! What idle threads cost beside busy ones: they look now and then for events that wait behind one of those.

use super::system::System;
use heddle_core::Ns;
use heddle_events::EventQueue;
use heddle_metrics::{Collector, Progress, Row, Run};
use heddle_sys::clock;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// The metric: the CPUs that the threads keep busy.
pub(super) const CPUS: &str = "idle_cpus";

/// Options of this part.
#[derive(Clone, Debug)]
pub struct IdleOptions {
    /// The systems to compare, of which the queues are measured.
    pub systems: Vec<System>,
    /// Idle threads, and as many busy ones.
    pub threads: usize,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each measurement.
    pub duration: Ns,
}

impl IdleOptions {
    /// 500 threads beside 500; with `quick`, 50 beside 50.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> IdleOptions {
        IdleOptions {
            systems: systems.to_vec(),
            threads: if quick { 50 } else { 500 },
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 150 } else { 3_000 }),
        }
    }

    fn policies(&self) -> impl Iterator<Item = &String> {
        self.systems.iter().filter_map(|system| match system {
            System::Queue(policy) => Some(policy),
            _ => None,
        })
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * self.policies().count() as u64
    }
}

/// The case in results.
fn case(threads: usize) -> String {
    format!("idle-{threads}")
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &IdleOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let (mut collect, case) = (Collector::new(), case(options.threads));
    for round in 0..options.rounds {
        for policy in options.policies() {
            progress.step(&format!("{case}, round {}: {policy}", round + 1));
            if stop.load(Relaxed) {
                return Ok(collect.into_rows());
            }
            let cpus = measure(options, policy).map_err(io::Error::other)?;
            collect.add(policy, &case, CPUS, "CPUs", Run::ok(cpus));
        }
    }
    Ok(collect.into_rows())
}

/// Returns how many CPUs the process kept busy. The busy threads are workers that do not come back: they cost
/// nothing themselves.
fn measure(options: &IdleOptions, policy: &str) -> Result<f64, heddle_events::EventError> {
    let queue = EventQueue::builder().policy(policy).build()?;
    let _busy = (0..options.threads).map(|_| queue.worker()).collect::<Result<Vec<_>, _>>()?;
    let ready = Barrier::new(options.threads + 1);
    thread::scope(|scope| {
        let idle = || {
            let worker = queue.worker();
            ready.wait();
            // Until the queue is closed.
            worker.and_then(|mut worker| {
                while worker.wait(None)?.count() == 0 {}
                Ok(())
            })
        };
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(idle)).collect();
        ready.wait();
        // They sleep longer and longer.
        thread::sleep(options.duration.into());
        let (begin, used) = (clock::now(), clock::process_cpu_time());
        thread::sleep(options.duration.into());
        let used = clock::process_cpu_time() - used;
        let cpus = used.0 as f64 / (clock::now() - begin).0 as f64;
        queue.close();
        for thread in threads {
            match thread.join().expect("an idle thread does nothing that panics") {
                Ok(()) | Err(heddle_events::EventError::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(cpus)
    })
}
