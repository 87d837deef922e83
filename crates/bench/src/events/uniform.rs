//! Uniform requests: what a policy costs when it cannot help.

use super::client::{Client, connect};
use super::connection::Served;
use super::demux::Watched;
use super::pipes::{add, directed};
use super::system::System;
use super::worker_threads::WorkerThreads;
use super::workload::Workload;
use heddle_core::Ns;
use heddle_load::{Closed, EpollClock, Op, closed_loop};
use heddle_metrics::{Collector, Progress, Row};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct UniformOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The workload.
    pub workload: Workload,
    /// Requests in flight: enough that no thread is idle.
    pub depth: usize,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each measurement.
    pub duration: Ns,
}

impl UniformOptions {
    /// Requests of 10 us, 256 in flight.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> UniformOptions {
        UniformOptions {
            systems: systems.to_vec(),
            workload: Workload::uniform(),
            depth: 256,
            rounds: if quick { 1 } else { 5 },
            duration: Ns::from_ms(if quick { 150 } else { 1_000 }),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * self.systems.len() as u64
    }
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &UniformOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let (mut collect, case) = (Collector::new(), options.workload.name);
    'all: for round in 0..options.rounds {
        let mut base = None;
        for system in &options.systems {
            progress.step(&format!("{case}, round {}: {system}", round + 1));
            let Some(rate) = measure(options, system, stop)? else { break 'all };
            if *system == System::PerThread {
                base = Some(rate);
            }
            add(&mut collect, &system.to_string(), case, rate, base);
        }
    }
    Ok(collect.into_rows().into_iter().map(directed).collect())
}

/// Answers per second; `None` if `stop` was set.
fn measure(
    options: &UniformOptions,
    system: &System,
    stop: &AtomicBool,
) -> io::Result<Option<f64>> {
    let workload = &options.workload;
    let (ends, connections) = connect(workload.wire, workload.connections)?;
    let watched: Vec<_> = connections.iter().map(|c| Watched { fd: c.fd(), high: false }).collect();
    let service = workload.service;
    let handle = |did: &mut Served, number: usize| connections[number].handle(service, did);
    let generate = || {
        let generator = || generate(options, ends, stop);
        let panicked = |_| Err(io::Error::other("the generator panicked"));
        thread::scope(|scope| scope.spawn(generator).join().unwrap_or_else(panicked))
    };
    let worker_threads = WorkerThreads { system, threads: workload.threads };
    Ok(worker_threads.run(&watched, &handle, generate)?.0)
}

fn generate(
    options: &UniformOptions,
    ends: Vec<OwnedFd>,
    stop: &AtomicBool,
) -> io::Result<Option<f64>> {
    heddle_sys::thread::make_prompt();
    let (_, demand) = options.workload.requests(1, 1.0);
    let mut client = Client::new(ends, demand, heddle_sys::clock::now())?;
    let mut clock = EpollClock::new(client.epoll());
    let closed = Closed {
        op: Op::Get,
        keys: options.workload.connections,
        depth: options.depth,
        warmup: options.duration / 6,
        duration: options.duration,
    };
    closed_loop(closed, &mut clock, &mut client, || !stop.load(Relaxed))
}
