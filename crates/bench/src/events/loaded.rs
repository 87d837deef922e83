//! Light requests among long ones, at a given load.

use super::client::{Client, connect};
use super::connection::{Served, imbalance};
use super::demux::Watched;
use super::system::System;
use super::worker_threads::WorkerThreads;
use super::workload::{Demand, Workload};
use crate::connections::raise_descriptors;
use heddle_core::Ns;
use heddle_load::{Arrival, LoadRun, Op, Pace, Plan, RealClock, drive};
use heddle_metrics::{Better, Collector, Histogram, Progress, Row, Run};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Options of this part.
#[derive(Clone, Debug)]
pub struct LoadedOptions {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// The workload.
    pub workload: Workload,
    /// Loads, as shares of the capacity.
    pub loads: Vec<f64>,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// Seed of arrivals and weights, which differ between rounds.
    pub seed: u64,
}

impl LoadedOptions {
    pub(super) fn steps(&self) -> u64 {
        u64::from(self.rounds) * (self.loads.len() * self.systems.len()) as u64
    }
}

/// One run.
pub(super) struct Sample {
    pub(super) run: LoadRun,
    pub(super) did: Vec<Served>,
}

/// A system under a load.
pub(super) struct Trial<'a> {
    pub(super) system: &'a System,
    pub(super) workload: &'a Workload,
    /// Number of high-priority connections after the workload's own, and whether the system treats them so.
    pub(super) beside: (usize, bool),
    pub(super) rate: f64,
    pub(super) duration: Ns,
}

impl Trial<'_> {
    fn plan(&self) -> Plan {
        let warmup = self.duration / 6;
        Plan { warmup, end: warmup + self.duration, timeout: Ns::from_secs(2) }
    }

    /// Runs it; the generator has its own thread.
    pub(super) fn run(
        &self,
        arrivals: impl Iterator<Item = Arrival> + Send,
        demand: Demand,
        stop: &AtomicBool,
    ) -> io::Result<Sample> {
        let own = self.workload.connections;
        // A descriptor for each end.
        raise_descriptors(2 * (own + self.beside.0))?;
        let (ends, connections) = connect(self.workload.wire, own + self.beside.0)?;
        let watched = |(number, fd)| Watched { fd, high: self.beside.1 && number >= own };
        let watched: Vec<_> = connections.iter().map(|c| c.fd()).enumerate().map(watched).collect();
        let service = self.workload.service;
        let handle = |did: &mut Served, number: usize| connections[number].handle(service, did);
        let generate = || {
            let generator = || self.generate(ends, demand, arrivals, stop);
            let panicked = |_| Err(io::Error::other("the generator panicked"));
            thread::scope(|scope| scope.spawn(generator).join().unwrap_or_else(panicked))
        };
        let worker_threads = WorkerThreads { system: self.system, threads: self.workload.threads };
        let (run, did) = worker_threads.run(&watched, &handle, generate)?;
        if stop.load(Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(Sample { run, did })
    }

    fn generate(
        &self,
        ends: Vec<std::os::fd::OwnedFd>,
        demand: Demand,
        arrivals: impl Iterator<Item = Arrival>,
        stop: &AtomicBool,
    ) -> io::Result<LoadRun> {
        // Its nice value stays the default: it gets no more CPU time than others, only sooner.
        heddle_sys::thread::make_prompt();
        let mut clock = RealClock::start(Pace::Due);
        let mut client = Client::new(ends, demand, clock.started())?;
        let way = (&mut clock, &mut client as &mut dyn heddle_load::Transport);
        drive(self.plan(), self.rate, arrivals, way, [None; Op::ALL.len()], |_| !stop.load(Relaxed))
    }
}

impl Sample {
    pub(super) fn latency(&self, op: Op) -> &Histogram {
        &self.run.tally.op(op).latency
    }

    pub(super) fn all(&self) -> Histogram {
        let mut all = Histogram::new();
        Op::ALL.into_iter().for_each(|op| all.merge(self.latency(op)));
        all
    }

    /// A figure of this run, with the reason if it must not be quoted.
    pub(super) fn value(&self, value: f64) -> Run {
        match self.run.invalid() {
            Some(why) => Run::invalid(value, why),
            None => Run::ok(value),
        }
    }

    /// A figure of this run and another of the same round.
    pub(super) fn ratio(&self, value: f64, other: &Sample) -> Run {
        match self.run.invalid().or_else(|| other.run.invalid()) {
            Some(why) => Run::invalid(value, why),
            None => Run::ok(value),
        }
    }
}

/// Measures in interleaved rounds.
pub(super) fn run(
    options: &LoadedOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        for &load in &options.loads {
            let mut samples: Vec<(&System, Sample)> = Vec::new();
            for system in &options.systems {
                progress.step(&format!(
                    "{}, round {}, load {:.0} %: {system}",
                    options.workload.name,
                    round + 1,
                    load * 100.0
                ));
                match measure(options, system, load, options.seed + u64::from(round), stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    sample => samples.push((system, sample?)),
                }
            }
            for (system, sample) in &samples {
                add(&mut collect, options.workload.name, system, sample, &samples);
            }
        }
    }
    Ok(collect.into_rows().into_iter().map(directed).collect())
}

fn measure(
    options: &LoadedOptions,
    system: &System,
    load: f64,
    seed: u64,
    stop: &AtomicBool,
) -> io::Result<Sample> {
    let workload = &options.workload;
    let (rate, duration) = (workload.capacity() * load, options.duration);
    let (arrivals, demand) = workload.requests(seed, rate);
    Trial { system, workload, beside: (0, false), rate, duration }.run(arrivals, demand, stop)
}

fn add(
    collect: &mut Collector,
    case: &str,
    system: &System,
    sample: &Sample,
    round: &[(&System, Sample)],
) {
    let name = system.to_string();
    let mut at = collect.at_load(sample.run.rate);
    let (light, all) = (sample.latency(Op::Get), sample.all());
    let times = [
        ("light_p50_ns", light.p50()),
        ("light_p99_ns", light.p99()),
        ("light_p999_ns", light.p999()),
        ("p99_ns", all.p99()),
        ("p999_ns", all.p999()),
    ];
    for (metric, time) in times {
        at.add(&name, case, metric, "ns", sample.value(time.0 as f64));
    }
    let counts = sample.run.tally.counts();
    at.add(&name, case, "throughput", "1/s", sample.value(sample.run.throughput_of_all()));
    at.add(&name, case, "late_percent", "%", sample.value(counts.late_share() * 100.0));
    at.add(&name, case, "imbalance_percent", "%", sample.value(imbalance(&sample.did)));
    let peer = |wanted| round.iter().find(|(system, _)| **system == wanted).map(|(_, of)| of);
    let over = |a: Ns, b: Ns| a.0 as f64 / b.0.max(1) as f64;
    if let Some(base) = peer(System::PerThread).filter(|_| *system != System::PerThread) {
        let theirs = base.latency(Op::Get);
        let gains = [
            ("light_p99_gain", over(theirs.p99(), light.p99())),
            ("light_p999_gain", over(theirs.p999(), light.p999())),
        ];
        for (metric, gain) in gains {
            at.add(&name, case, metric, "x", sample.ratio(gain, base));
        }
    }
    if let Some(shared) = peer(System::Shared).filter(|_| system.is_queue()) {
        let ratio = over(light.p99(), shared.latency(Op::Get).p99());
        at.add(&name, case, "light_p99_over_shared", "x", sample.ratio(ratio, shared));
    }
}

fn directed(row: Row) -> Row {
    if row.metric.ends_with("_gain") { row.with_better(Better::Higher) } else { row }
}
