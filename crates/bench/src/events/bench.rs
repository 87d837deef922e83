//! All parts, in the order of their tables.

use super::idle::{self, IdleOptions};
use super::loaded::{self, LoadedOptions};
use super::memcached::{self, MemcachedOptions};
use super::overhead::{self, OverheadOptions};
use super::pipes::{self, PipesOptions};
use super::priority::{self, PriorityOptions};
use super::uniform::{self, UniformOptions};
use super::web::{self, WebOptions};
use super::{Part, System, Wire, Workload, predicted, report, targets};
use crate::steer::Dilation;
use crate::suite::{Outcome, Part as _, PartResult, Suite, Target};
use heddle_core::Ns;
use heddle_metrics::{Progress, Report, Results, Row};
use std::io;
use std::sync::atomic::AtomicBool;

/// Options of `heddle bench events`.
#[derive(Clone, Debug)]
pub struct EventsOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The cost of an event.
    pub overhead: OverheadOptions,
    /// Saturated pipes.
    pub pipes: PipesOptions,
    /// A few long requests.
    pub zippydb: LoadedOptions,
    /// A few heavy connections.
    pub gis: LoadedOptions,
    /// The same on twelve threads.
    pub dilated: LoadedOptions,
    /// Uniform requests.
    pub uniform: UniformOptions,
    /// memcached with the ETC workload.
    pub memcached: MemcachedOptions,
    /// A web server.
    pub web: WebOptions,
    /// A client of high priority.
    pub priority: PriorityOptions,
    /// Idle threads beside busy ones.
    pub idle: IdleOptions,
    /// Rows of a simulation, from [`super::predicted()`], shown next to the measured ones.
    pub predicted: Vec<Row>,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
}

/// The times of SKQ's ZippyDB mix are halved: its long requests still take the time of a thousand wakeups.
const SCALE: f64 = 0.5;
/// Time dilation of the GIS workload, as in the trials.
const DILATION: Dilation = Dilation(20);
/// That of the twelve threads: a light request takes a millisecond, of which waking up is a hundredth.
const DILATION_OF_TWELVE: Dilation = Dilation(100);

impl EventsOptions {
    /// All parts at their usual length, some fifteen minutes with the usual systems; with `quick`, one short
    /// round of each, not to quote.
    #[must_use]
    pub fn new(systems: &[System], quick: bool) -> EventsOptions {
        let loaded = |workload, loads: [f64; 2]| LoadedOptions {
            systems: systems.to_vec(),
            workload,
            loads: if quick { loads[..1].to_vec() } else { loads.to_vec() },
            rounds: if quick { 1 } else { 3 },
            duration: Ns::from_ms(if quick { 300 } else { 3_000 }),
            seed: 1,
        };
        EventsOptions {
            parts: Part::ALL.to_vec(),
            overhead: OverheadOptions::new(systems, quick),
            pipes: PipesOptions::new(systems, quick),
            zippydb: loaded(Workload::zippydb(SCALE), [0.35, 0.60]),
            gis: loaded(Workload::gis(DILATION), [0.40, 0.60]),
            dilated: loaded(Workload::dilated(DILATION_OF_TWELVE), [0.50, 0.80]),
            uniform: UniformOptions::new(systems, quick),
            memcached: MemcachedOptions::new(systems, quick),
            web: WebOptions::new(systems, quick),
            priority: PriorityOptions::new(systems, quick),
            idle: IdleOptions::new(systems, quick),
            predicted: Vec::new(),
            quick,
        }
    }

    /// Sets the rounds of each part.
    pub fn set_rounds(&mut self, rounds: u32) {
        let all = [
            &mut self.overhead.rounds,
            &mut self.pipes.rounds,
            &mut self.zippydb.rounds,
            &mut self.gis.rounds,
            &mut self.dilated.rounds,
            &mut self.uniform.rounds,
            &mut self.memcached.rounds,
            &mut self.web.rounds,
            &mut self.priority.rounds,
            &mut self.idle.rounds,
        ];
        all.into_iter().for_each(|of| *of = rounds);
    }

    /// Sets the duration of each point, except in the overhead part.
    pub fn set_duration(&mut self, time: Ns) {
        let all = [
            &mut self.pipes.duration,
            &mut self.zippydb.duration,
            &mut self.gis.duration,
            &mut self.dilated.duration,
            &mut self.uniform.duration,
            &mut self.memcached.duration,
            &mut self.web.duration,
            &mut self.priority.duration,
            &mut self.idle.duration,
        ];
        all.into_iter().for_each(|of| *of = time);
    }

    /// Sets the loads of all parts that have some, as shares of the capacity.
    pub fn set_loads(&mut self, loads: &[f64]) {
        let all = [
            &mut self.zippydb.loads,
            &mut self.gis.loads,
            &mut self.dilated.loads,
            &mut self.memcached.loads,
            &mut self.web.loads,
        ];
        all.into_iter().for_each(|of| *of = loads.to_vec());
    }

    /// Scales the times of the ZippyDB mix.
    pub fn set_scale(&mut self, scale: f64) {
        self.zippydb.workload =
            Workload { wire: self.zippydb.workload.wire, ..Workload::zippydb(scale) };
    }

    /// Scales the times of the GIS workload, on six and on twelve threads.
    pub fn set_dilation(&mut self, dilation: Dilation) {
        for workload in [&mut self.gis.workload, &mut self.priority.workload] {
            *workload = Workload { wire: workload.wire, ..Workload::gis(dilation) };
        }
        let wire = self.dilated.workload.wire;
        self.dilated.workload = Workload { wire, ..Workload::dilated(dilation) };
    }

    /// Sets the kind of connections in all parts that have some.
    pub fn set_wire(&mut self, wire: Wire) {
        let all = [
            &mut self.zippydb.workload,
            &mut self.gis.workload,
            &mut self.dilated.workload,
            &mut self.uniform.workload,
            &mut self.priority.workload,
        ];
        all.into_iter().for_each(|of| of.wire = wire);
    }

    /// Sets the seed of arrivals and weights.
    pub fn set_seed(&mut self, seed: u64) {
        let all = [
            &mut self.zippydb.seed,
            &mut self.gis.seed,
            &mut self.dilated.seed,
            &mut self.memcached.seed,
            &mut self.web.seed,
            &mut self.priority.seed,
        ];
        all.into_iter().for_each(|of| *of = seed);
    }

    /// A part's measured rows against its targets.
    fn targets(&self, part: Part, rows: &[Row]) -> Vec<Target> {
        match part {
            Part::Overhead => targets::overhead(&self.overhead.systems, rows),
            Part::Pipes => targets::throughput("pipes", &self.pipes.systems, rows),
            Part::ZippyDb => targets::tails(&self.zippydb, rows),
            Part::Gis => targets::tails(&self.gis, rows),
            Part::Dilated => targets::tails(&self.dilated, rows),
            Part::Uniform => {
                targets::throughput(self.uniform.workload.name, &self.uniform.systems, rows)
            }
            Part::Priority => targets::priority(self.priority.chief.as_ref(), rows),
            Part::Memcached | Part::Web | Part::Idle => Vec::new(),
        }
    }
}

impl Suite for EventsOptions {
    type Part = Part;

    const NAME: &'static str = "bench events";

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn steps(&self) -> u64 {
        let of = |part: &Part| match part {
            Part::Overhead => 1,
            Part::Pipes => self.pipes.steps(),
            Part::ZippyDb => self.zippydb.steps(),
            Part::Gis => self.gis.steps(),
            Part::Dilated => self.dilated.steps(),
            Part::Uniform => self.uniform.steps(),
            Part::Memcached => self.memcached.steps(),
            Part::Web => self.web.steps(),
            Part::Priority => self.priority.steps(),
            Part::Idle => self.idle.steps(),
        };
        self.parts.iter().map(of).sum()
    }

    fn obstacle(&self, part: Part) -> Option<String> {
        if part == Part::Memcached { self.memcached.obstacle() } else { None }
    }

    fn lacks(&self, part: Part) -> Option<String> {
        if part == Part::Memcached {
            return self.memcached.lacks();
        }
        let needs_queue = match part {
            Part::Priority => self.priority.chief.is_none().then_some("there is no priority"),
            Part::Idle => (self.idle.steps() == 0).then_some("idle threads look for nothing"),
            _ => None,
        };
        needs_queue.map(|what| format!("without a queue among the systems {what}"))
    }

    fn measure(
        &self,
        part: Part,
        stop: &AtomicBool,
        progress: &mut Progress,
    ) -> io::Result<PartResult> {
        let mut rows = match part {
            Part::Overhead => overhead::run(&self.overhead, stop, progress),
            Part::Pipes => pipes::run(&self.pipes, stop, progress),
            Part::ZippyDb => loaded::run(&self.zippydb, stop, progress),
            Part::Gis => loaded::run(&self.gis, stop, progress),
            Part::Dilated => loaded::run(&self.dilated, stop, progress),
            Part::Uniform => uniform::run(&self.uniform, stop, progress),
            Part::Memcached => memcached::run(&self.memcached, stop, progress),
            Part::Web => web::run(&self.web, stop, progress),
            Part::Priority => priority::run(&self.priority, stop, progress),
            Part::Idle => idle::run(&self.idle, stop, progress),
        }?;
        let targets = self.targets(part, &rows);
        rows.extend(predicted::about(part, &rows, &self.predicted));
        let tables = targets::tables(part, &rows);
        Ok(PartResult { targets, tables, rows, ..PartResult::default() })
    }

    /// Conditions that a reader must know before quoting.
    fn conditions(&self) -> Vec<String> {
        let (zippydb, gis) = (&self.zippydb.workload, &self.gis.workload);
        let dilated = &self.dilated.workload;
        let mut said = vec![
            "Systems in turn within a round, medians of rounds with least and greatest; ratios are of two runs \
             of one round.".into(),
            "Open loop, Poisson; latency from the intended send time to the end of the service; a run with more \
             than 1.5 % of sends later \
             than a millisecond is invalid. The generator is a thread of ordinary priority on the same CPUs."
                .into(),
            format!(
                "zippydb: {} threads, a light request takes {}, capacity {:.0}/s. uniform: a closed loop, the \
                 generator's work is in it.",
                zippydb.threads,
                zippydb.light(),
                zippydb.capacity()
            ),
            format!(
                "gis, priority: {} threads in dilated time (a light request takes {}, the CPU is yielded \
                 meanwhile), capacity {:.0}/s; \
                 queueing decides, not the CPU.",
                gis.threads,
                gis.light(),
                gis.capacity()
            ),
            format!(
                "dilated: the same mix on {} threads that sleep while they serve (a light request takes {}), \
                 {} connections, capacity {:.0}/s.",
                dilated.threads,
                dilated.light(),
                dilated.connections,
                dilated.capacity()
            ),
        ];
        said.extend([memcached::condition(&self.memcached), web::condition(&self.web)]);
        if !self.predicted.is_empty() {
            said.push("Systems called sim: are the simulator's predictions, not measured.".into());
        }
        if self.quick {
            said.push("--quick: each part once and shortly, not to quote.".into());
        }
        said
    }

    fn report(&self, outcome: &Outcome<Part>, results: &Results) -> Report {
        report::report(self.conditions(), outcome, results)
    }
}
