//! Loads over TCP connections to a server, and the rows of what they measure.

use super::connection::{Served, imbalance};
use super::system::System;
use heddle_core::Ns;
use heddle_load::{
    Arrival, Closed, Dialect, EpollClock, LoadRun, Moment, Op, Plan, Streams, Transport,
    closed_loop, drive,
};
use heddle_metrics::{Better, Collector, Histogram, Row, Run};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// A system under a load.
pub(super) struct Offered<'a> {
    pub(super) system: &'a System,
    pub(super) run: LoadRun,
    /// What each thread of the server did, if that is known.
    pub(super) did: Vec<Served>,
}

/// Runs the generator in a thread of its own, which keeps the default nice value.
pub(super) fn generate<T: Send>(generator: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let promptly = || {
        heddle_sys::thread::make_prompt();
        generator()
    };
    let panicked = |_| Err(io::Error::other("the generator panicked"));
    thread::scope(|scope| scope.spawn(promptly).join().unwrap_or_else(panicked))
}

/// Answers per second to GETs, with `depth` in flight.
///
/// # Errors
/// Transport errors; `stop` was set.
pub(super) fn saturate<D: Dialect>(
    mut streams: Streams<D>,
    (keys, depth): (usize, usize),
    duration: Ns,
    stop: &AtomicBool,
) -> io::Result<f64> {
    let closed = Closed { op: Op::Get, keys, depth, warmup: duration / 6, duration };
    let mut clock = EpollClock::new(streams.epoll());
    let rate = closed_loop(closed, &mut clock, &mut streams, || !stop.load(Relaxed))?;
    rate.ok_or_else(|| io::ErrorKind::Interrupted.into())
}

/// Offers `arrivals`, `rate` per second.
///
/// # Errors
/// Transport errors; `stop` was set.
pub(super) fn offer<D: Dialect>(
    mut streams: Streams<D>,
    arrivals: impl Iterator<Item = Arrival>,
    (rate, duration): (f64, Ns),
    stop: &AtomicBool,
) -> io::Result<LoadRun> {
    let warmup = duration / 6;
    let plan = Plan { warmup, end: warmup + duration, timeout: Ns::from_secs(2) };
    let mut clock = EpollClock::new(streams.epoll());
    let way = (&mut clock, &mut streams as &mut dyn Transport);
    let go_on = |_: Moment<'_>| !stop.load(Relaxed);
    let run = drive(plan, rate, arrivals, way, [None; Op::ALL.len()], go_on)?;
    if stop.load(Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(run) }
}

fn latency(run: &LoadRun) -> Histogram {
    let mut all = Histogram::new();
    Op::ALL.into_iter().for_each(|op| all.merge(&run.tally.op(op).latency));
    all
}

/// A figure of these runs, with the reason if it must not be quoted. Below saturation a connection is free, unless the
/// machine is too busy.
fn figure(value: f64, runs: &[&LoadRun]) -> Run {
    match runs.iter().find_map(|run| run.invalid()) {
        Some(why) => Run::invalid(value, why),
        None => Run::ok(value),
    }
}

/// Adds the systems of one round at one load.
pub(super) fn add(collect: &mut Collector, case: &str, round: &[Offered<'_>]) {
    let peer = |wanted| round.iter().find(|of| *of.system == wanted);
    for Offered { system, run, did } in round {
        let (name, all) = (system.to_string(), latency(run));
        let mut at = collect.at_load(run.rate);
        for (metric, time) in
            [("p50_ns", all.p50()), ("p99_ns", all.p99()), ("p999_ns", all.p999())]
        {
            at.add(&name, case, metric, "ns", figure(time.0 as f64, &[run]));
        }
        at.add(&name, case, "throughput", "1/s", figure(run.throughput_of_all(), &[run]));
        let late = run.tally.counts().late_share() * 100.0;
        at.add(&name, case, "late_percent", "%", figure(late, &[run]));
        if !did.is_empty() {
            at.add(&name, case, "imbalance_percent", "%", figure(imbalance(did), &[run]));
        }
        let over = |a: Ns, b: Ns| a.0 as f64 / b.0.max(1) as f64;
        if let Some(base) = peer(System::PerThread).filter(|base| base.system != *system) {
            let gain = over(latency(&base.run).p99(), all.p99());
            at.add(&name, case, "p99_gain", "x", figure(gain, &[run, &base.run]));
        }
    }
}

/// Higher gains are better.
pub(super) fn directed(row: Row) -> Row {
    if row.metric == "p99_gain" { row.with_better(Better::Higher) } else { row }
}
