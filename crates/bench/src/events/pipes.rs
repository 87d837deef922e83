//! SKQ's test of scalability: pipes that are always ready and handlers with little work, on more and more threads.

use super::demux::Remainder;
use super::ring::Ring;
use super::service::Service;
use super::system::System;
use super::worker_threads::{WorkerThreads, pass};
use heddle_core::Ns;
use heddle_metrics::{Better, Collector, Progress, Row, Run};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct PipesOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Numbers of threads, in turn.
    pub threads: Vec<usize>,
    /// Pipes per thread.
    pub pipes: usize,
    /// Work of a handler.
    pub work: Ns,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each measurement.
    pub duration: Ns,
}

/// Warm-up.
pub(super) const WARMUP: Ns = Ns::from_ms(50);

impl PipesOptions {
    /// SKQ's 12 pipes per thread; from one thread to one per CPU.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> PipesOptions {
        let cpus = heddle_sys::thread::affinity().map_or(1, |cpus| cpus.len());
        PipesOptions {
            systems: systems.to_vec(),
            threads: (1..=cpus).filter(|n| n.is_power_of_two() || *n == cpus).collect(),
            pipes: 12,
            work: Ns::from_us(5),
            rounds: if quick { 1 } else { 5 },
            duration: Ns::from_ms(if quick { 100 } else { 600 }),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * (self.threads.len() * self.systems.len()) as u64
    }
}

/// The case name for a number of threads.
pub(super) fn case(threads: usize) -> String {
    format!("pipes-{threads}")
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &PipesOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        for &threads in &options.threads {
            let mut base = None;
            for system in &options.systems {
                progress.step(&format!("pipes, round {}, {threads} threads: {system}", round + 1));
                let rate = match measure(options, system, threads, stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    rate => rate?,
                };
                if *system == System::PerThread {
                    base = Some(rate);
                }
                add(&mut collect, &system.to_string(), &case(threads), rate, base);
            }
        }
    }
    Ok(collect.into_rows().into_iter().map(directed).collect())
}

/// A throughput, and its ratio to one epoll per thread in the same round.
pub(super) fn add(collect: &mut Collector, system: &str, case: &str, rate: f64, base: Option<f64>) {
    collect.add(system, case, "throughput", "1/s", Run::ok(rate));
    if let Some(base) = base {
        collect.add(system, case, "throughput_ratio", "x", Run::ok(rate / base));
    }
}

/// Higher ratios of throughput are better.
pub(super) fn directed(row: Row) -> Row {
    if row.metric == "throughput_ratio" { row.with_better(Better::Higher) } else { row }
}

/// Events per second.
fn measure(
    options: &PipesOptions,
    system: &System,
    threads: usize,
    stop: &AtomicBool,
) -> io::Result<f64> {
    let ring = Ring::new(threads * options.pipes)?;
    let counting = AtomicBool::new(false);
    let handle = |count: &mut u64, number: usize| {
        if ring.take(number) {
            Service::Cpu.work(options.work);
            *count += u64::from(counting.load(Relaxed));
            // The pipe was empty: there is room.
            let _ = ring.fill(number);
        }
        Remainder::Nothing
    };
    let meanwhile = || {
        ring.fill_all()?;
        pass(WARMUP.into(), stop)?;
        counting.store(true, Relaxed);
        let begin = Instant::now();
        pass(options.duration.into(), stop)?;
        counting.store(false, Relaxed);
        Ok(begin.elapsed())
    };
    let worker_threads = WorkerThreads { system, threads };
    let (time, counts) = worker_threads.run(&ring.watched(), &handle, meanwhile)?;
    Ok(counts.iter().sum::<u64>() as f64 / time.as_secs_f64())
}
