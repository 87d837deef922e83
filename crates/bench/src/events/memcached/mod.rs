//! memcached with Facebook's ETC workload (SKQ, section 6.4): requests are short and alike, and a policy can gain
//! little.
//!
//! One epoll per thread is the distribution's memcached. The policies are of a memcached whose threads share one queue,
//! as `examples/memcached/run` builds it.

mod etc;
mod server;

use super::offered::{self, Offered};
use super::system::System;
use crate::posix::installed::MEMCACHED;
use etc::Etc;
use heddle_core::Ns;
use heddle_load::{LoadRun, Streams};
use heddle_metrics::{Collector, Progress, Row, Run};
use server::{SHARED, Server};
use std::ffi::OsString;
use std::io;
use std::sync::atomic::AtomicBool;

/// The case in results.
pub(super) const CASE: &str = "memcached";

/// Options of this part.
#[derive(Clone, Debug)]
pub struct MemcachedOptions {
    /// The systems to compare, of which one epoll per thread and the queues are measured.
    pub systems: Vec<System>,
    /// The memcached whose threads share a queue, if there is one.
    pub shared: Option<OsString>,
    /// Threads of the server.
    pub threads: usize,
    /// Connections, one request at a time on each.
    pub connections: usize,
    /// Loads, as shares of what the distribution's memcached answers in a closed loop.
    pub loads: Vec<f64>,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// Seed of the arrivals, which differ between rounds.
    pub seed: u64,
}

impl MemcachedOptions {
    /// A thread for each CPU, at least two, and SKQ's twelve connections for each of twelve client threads. The
    /// memcached on a queue is the program that `HEDDLE_MEMCACHED` names.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> MemcachedOptions {
        MemcachedOptions {
            systems: systems.to_vec(),
            shared: std::env::var_os(SHARED).filter(|name| !name.is_empty()),
            threads: heddle_sys::thread::affinity().map_or(2, |cpus| cpus.len().max(2)),
            connections: 144,
            loads: if quick { vec![0.4] } else { vec![0.4, 0.6] },
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 300 } else { 3_000 }),
            seed: 1,
        }
    }

    fn measured(&self) -> impl Iterator<Item = &System> {
        self.systems.iter().filter(|system| server::has(system, self.shared.as_ref()))
    }

    pub(super) fn steps(&self) -> u64 {
        1 + u64::from(self.rounds) * (self.loads.len() * self.measured().count()) as u64
    }

    /// Why the part cannot run here.
    pub(super) fn obstacle(&self) -> Option<String> {
        MEMCACHED.find().err()
    }

    /// What is left out here, and why.
    pub(super) fn lacks(&self) -> Option<String> {
        let has_queue = self.systems.iter().any(System::is_queue);
        (has_queue && self.shared.is_none()).then(|| {
            format!("without a memcached on the queue there are no policies ({SHARED}=examples/memcached/run)")
        })
    }
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &MemcachedOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("memcached: how much it can do");
    let capacity = with_server(options, &System::PerThread, stop, |streams| {
        let depth = (etc::KEYS, options.connections);
        offered::saturate(streams, depth, options.duration, stop)
    })?;
    progress.line(&format!("  the distribution's answers {capacity:.0}/s"));
    let mut collect = Collector::new();
    collect.add("calibration", CASE, "saturation", "1/s", Run::ok(capacity));
    'all: for round in 0..options.rounds {
        for &load in &options.loads {
            let mut samples = Vec::new();
            for system in options.measured() {
                let percent = load * 100.0;
                progress.step(&format!(
                    "memcached, round {}, load {percent:.0} %: {system}",
                    round + 1
                ));
                let (rate, seed) = (capacity * load, options.seed + u64::from(round));
                match measure(options, system, (rate, seed), stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    run => samples.push(Offered { system, run: run?, did: Vec::new() }),
                }
            }
            offered::add(&mut collect, CASE, &samples);
        }
    }
    Ok(collect.into_rows().into_iter().map(offered::directed).collect())
}

fn measure(
    options: &MemcachedOptions,
    system: &System,
    (rate, seed): (f64, u64),
    stop: &AtomicBool,
) -> io::Result<LoadRun> {
    with_server(options, system, stop, |streams| {
        offered::offer(streams, etc::arrivals(seed, rate), (rate, options.duration), stop)
    })
}

/// Lets `load` send requests to a fresh server.
fn with_server<T: Send>(
    options: &MemcachedOptions,
    system: &System,
    stop: &AtomicBool,
    load: impl FnOnce(Streams<Etc>) -> io::Result<T> + Send,
) -> io::Result<T> {
    let server = Server::start(system, options.threads, options.shared.as_ref(), stop)?;
    let connect = || Streams::connect(server.address, options.connections, etc::shape());
    offered::generate(|| load(connect()?)).map_err(|error| server.explain(&error))
}

/// The condition that a reader must know.
pub(super) fn condition(options: &MemcachedOptions) -> String {
    format!(
        "memcached: {} threads, {} connections over loopback, {} items with ETC's sizes, {}, ETC's gaps; loads are \
         shares of what the distribution's memcached answers in a closed loop; latency until the answer is read.",
        options.threads,
        options.connections,
        etc::KEYS,
        etc::MIX
    )
}
