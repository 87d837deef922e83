//! The cost of an event: one thread, empty handlers, pipes that are always ready.

use super::demux::{Demux, EventWorker, Remainder, Watched};
use super::open::open;
use super::ring::Ring;
use super::system::System;
use heddle_metrics::{Collector, Progress, Row, Run};
use heddle_sys::clock::ticks;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The case in results.
pub(super) const CASE: &str = "overhead";

/// Options of this part.
#[derive(Clone, Debug)]
pub struct OverheadOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Pipes.
    pub pipes: usize,
    /// Rounds.
    pub rounds: u32,
    /// Slices of each system per round, in turn; a round's figure is their median.
    pub slices: usize,
    /// Events per slice: few, so that a disturbance hits all systems alike.
    pub events: usize,
}

impl OverheadOptions {
    /// 24 pipes, as in the paper.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> OverheadOptions {
        OverheadOptions {
            systems: systems.to_vec(),
            pipes: 24,
            rounds: if quick { 2 } else { 15 },
            slices: if quick { 10 } else { 60 },
            events: if quick { 200 } else { 500 },
        }
    }
}

/// Measures all systems in turn on one CPU.
pub(super) fn run(
    options: &OverheadOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("overhead");
    // A separate thread: it is pinned, and what it creates ends with it.
    let rounds = std::thread::scope(|scope| {
        let measure = scope.spawn(|| measure(options, stop));
        measure.join().unwrap_or_else(|_| Err(io::Error::other("the measuring thread panicked")))
    })?;
    let mut collect = Collector::new();
    for round in rounds {
        add(&mut collect, options, &round);
    }
    Ok(collect.into_rows())
}

/// The additional cost of a system over one epoll per thread.
pub(super) const OVER: &str = "cycles_over_per_thread";

fn add(collect: &mut Collector, options: &OverheadOptions, round: &[f64]) {
    let base = options.systems.iter().position(|system| *system == System::PerThread);
    for (system, cycles) in options.systems.iter().zip(round) {
        let name = system.to_string();
        collect.add(&name, CASE, "cycles_per_event", "cycles", Run::ok(*cycles));
        if let Some(base) = base.filter(|_| *system != System::PerThread) {
            collect.add(&name, CASE, OVER, "cycles", Run::ok(cycles - round[base]));
        }
    }
}

/// Cycles per event of each system, for each round.
fn measure(options: &OverheadOptions, stop: &AtomicBool) -> io::Result<Vec<Vec<f64>>> {
    let cpus = heddle_sys::thread::affinity()?;
    heddle_sys::thread::pin(&cpus[..1])?;
    let ring = |_: &System| Ring::new(options.pipes);
    let rings = options.systems.iter().map(ring).collect::<io::Result<Vec<Ring>>>()?;
    let watched: Vec<Vec<Watched<'_>>> = rings.iter().map(Ring::watched).collect();
    let pairs = options.systems.iter().zip(&watched);
    let demuxes: Vec<Box<dyn Demux + '_>> =
        pairs.map(|(system, watched)| open(system, 1, watched)).collect::<io::Result<_>>()?;
    let mut workers = Vec::new();
    for (demux, ring) in demuxes.iter().zip(&rings) {
        workers.push(demux.worker(0)?);
        (0..options.pipes).try_for_each(|number| demux.register(number))?;
        ring.fill_all()?;
    }
    let mut rounds = Vec::new();
    while rounds.len() < options.rounds as usize && !stop.load(Ordering::Relaxed) {
        rounds.push(round(options, &rings, &mut workers)?);
    }
    Ok(rounds)
}

fn round(
    options: &OverheadOptions,
    rings: &[Ring],
    workers: &mut [Box<dyn EventWorker + '_>],
) -> io::Result<Vec<f64>> {
    let mut slices = vec![Vec::new(); workers.len()];
    for _ in 0..options.slices {
        for ((worker, ring), of) in workers.iter_mut().zip(rings).zip(&mut slices) {
            of.push(slice(&mut **worker, ring, options.events)?);
        }
    }
    Ok(slices.into_iter().map(median).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Time stamp counter cycles per event, over `events` events.
fn slice(worker: &mut dyn EventWorker, ring: &Ring, events: usize) -> io::Result<f64> {
    let (from, mut count) = (ticks(), 0);
    while count < events {
        let before = count;
        worker.serve(Duration::from_secs(10), &mut |number| {
            if ring.take(number) {
                count += 1;
                // An error would leave the pipe empty, which is detected below.
                let _ = ring.fill(number);
            }
            Remainder::Nothing
        })?;
        if count == before {
            return Err(io::Error::other("a system lost the events of pipes that are ready"));
        }
    }
    Ok((ticks() - from) as f64 / count as f64)
}
