//! Arrivals of requests.

use super::jobs::{Job, Kind};
use super::{ARRIVALS, Engine, SLEEPERS};
use crate::Random;
use crate::error::SimError;
use crate::outcome::Unstable;
use crate::scenario::{Scenario, Steer};
use crate::workload::{
    Arrivals, FileError, FileProblem, Gaps, Mix, TraceReader, TraceRequest, TraceSummary,
};
use heddle_core::{Class, CpuId, Enqueue, Ns, Policy, TaskAttrs, TaskId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

/// The random streams of a run, one per purpose.
pub(crate) const GAPS: u64 = 1;
pub(crate) const SIZES: u64 = 2;
const STEERING: u64 = 3;
const THINKING: u64 = 4;
pub(super) const CONNECTIONS: u64 = 5;

/// The number of tasks in the system at which a run is aborted.
const MOST_TASKS: usize = 4_000_000;

/// The source of requests, and which of them count.
pub(super) struct Arriving {
    source: Source,
    sizes: Random,
    next_sizes: Ahead<(usize, Ns)>,
    steering: Random,
    thinking: Random,
    /// The CPUs of each part of the mix: the first and how many.
    hosts: Vec<(u16, u16)>,
    /// Requests that have arrived so far.
    pub count: u64,
    pub plan: Plan,
    next_home: usize,
    /// The CPUs, in the order left by the last draws.
    homes: Vec<CpuId>,
    /// Thinking clients: until when, and in the order in which they started.
    sleepers: BinaryHeap<Reverse<(Ns, u64, TaskId)>>,
    slept: u64,
    /// Tasks in the system when the first and the last measured request arrived.
    pub backlog: [Option<usize>; 2],
}

/// Draws of a stream that serves nothing else, made a block at a time: the logarithms of a block overlap in the
/// processor, those between two events do not.
struct Ahead<T> {
    block: Box<[T; Ahead::<()>::BLOCK]>,
    taken: usize,
}

impl Ahead<()> {
    const BLOCK: usize = 64;
}

impl<T: Copy + Default> Default for Ahead<T> {
    fn default() -> Ahead<T> {
        Ahead { block: Box::new([T::default(); Ahead::BLOCK]), taken: Ahead::BLOCK }
    }
}

impl<T: Copy> Ahead<T> {
    /// Returns what the next call of `draw` would return if nothing were drawn ahead.
    #[inline]
    fn take(&mut self, mut draw: impl FnMut() -> T) -> T {
        if self.taken == Ahead::BLOCK {
            self.block.iter_mut().for_each(|draws| *draws = draw());
            self.taken = 0;
        }
        self.taken += 1;
        self.block[self.taken - 1]
    }
}

enum Source {
    Open { gaps: Gaps, random: Random, next: Ahead<Ns> },
    Closed,
    Trace { rest: TraceReader, next: Option<TraceRequest> },
}

/// Which requests count, and the names of their parts.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub names: Vec<String>,
    pub warmup: u64,
    pub requests: u64,
}

impl Plan {
    fn of(scenario: &Scenario) -> Result<Plan, SimError> {
        let share = |requests: u64| (requests as f64 * scenario.warmup).round() as u64;
        if let Arrivals::Trace(file) = &scenario.arrivals {
            let trace = TraceReader::check(file)?;
            refuse(file, &trace)?;
            let requests = trace.requests.min(scenario.requests);
            let warmup = share(requests).min(requests - 1);
            return Ok(Plan { names: trace.names, warmup, requests: requests - warmup });
        }
        let names = scenario.mix.parts().iter().map(|part| part.name.clone()).collect();
        Ok(Plan { names, warmup: share(scenario.requests), requests: scenario.requests })
    }

    /// Returns the number of the first request that no longer counts.
    fn end(&self) -> u64 {
        self.warmup + self.requests
    }
}

/// Refuses what a trace says and a run whose executors are CPUs does not model.
fn refuse(file: &Path, trace: &TraceSummary) -> Result<(), FileError> {
    let (column, why) = match () {
        () if trace.waits => (
            "wait",
            "a CPU does not hold a request that sleeps; replay the trace as a service, whose workers do \
             (heddle_sim::service), or remove the column",
        ),
        () if trace.executors => (
            "executor",
            "the policy decides where a request runs, not the recording; replay the trace as a service \
             (heddle_sim::service), or remove the column",
        ),
        () => return Ok(()),
    };
    let (file, problem) = (file.to_path_buf(), FileProblem::NotModelled { column, why });
    Err(FileError { file, line: None, problem })
}

impl Arriving {
    pub fn new(scenario: &Scenario) -> Result<Arriving, SimError> {
        let plan = Plan::of(scenario)?;
        let source = match &scenario.arrivals {
            Arrivals::Trace(file) => Source::Trace { rest: TraceReader::open(file)?, next: None },
            Arrivals::Closed { .. } => Source::Closed,
            open => Source::Open {
                gaps: Gaps::new(open, scenario.rate())?,
                random: Random::new(scenario.seed, GAPS),
                next: Ahead::default(),
            },
        };
        Ok(Arriving {
            source,
            sizes: Random::new(scenario.seed, SIZES),
            next_sizes: Ahead::default(),
            steering: Random::new(scenario.seed, STEERING),
            thinking: Random::new(scenario.seed, THINKING),
            hosts: hosts(&scenario.mix, scenario.machine.cpus),
            count: 0,
            plan,
            next_home: 0,
            homes: (0..scenario.machine.cpus as u16).map(CpuId).collect(),
            sleepers: BinaryHeap::new(),
            slept: 0,
            backlog: [None; 2],
        })
    }

    /// Counts a request that arrives now and returns its number.
    fn count_one(&mut self, tasks: usize) -> u64 {
        let number = self.count;
        self.count += 1;
        if number == self.plan.warmup {
            self.backlog[0] = Some(tasks);
        }
        if number + 1 == self.plan.end() {
            self.backlog[1] = Some(tasks);
        }
        number
    }

    /// Returns why the run should be aborted: too many tasks, or counted requests are still not done
    /// after twice as many have arrived.
    pub fn overload(&self, tasks: usize, dropped: u64) -> Option<Unstable> {
        match () {
            () if dropped > 20 * self.plan.end() + 100_000 => Some(Unstable::Unfinished),
            () if tasks > MOST_TASKS => Some(Unstable::TooManyTasks(tasks)),
            () if self.count > 2 * self.plan.end() + 100_000 => Some(Unstable::Unfinished),
            () => None,
        }
    }

    /// Returns the random stream of the steering.
    pub(super) fn steering_numbers(&mut self) -> &mut Random {
        &mut self.steering
    }

    #[inline]
    pub(super) fn home(
        &mut self,
        steer: Steer,
        (part, connection): (usize, Option<u32>),
        fewest: impl Fn(CpuId) -> usize,
        cpus: usize,
    ) -> CpuId {
        let (random, n) = (&mut self.steering, cpus as u64);
        let any = |random: &mut Random| CpuId(random.below(n) as u16);
        match steer {
            Steer::RoundRobin => {
                self.next_home = if self.next_home + 1 < cpus { self.next_home + 1 } else { 0 };
                CpuId(self.next_home as u16)
            }
            Steer::Random => any(random),
            Steer::Hash { flows } => {
                let drawn = random.below(flows.into());
                let flow = connection.map_or(drawn, u64::from);
                CpuId(Random::new(flow, STEERING).below(n) as u16)
            }
            Steer::Fewest { choices } => {
                let drawn = draw(random, &mut self.homes, cpus, choices as usize);
                // Of equals, the one drawn first.
                drawn.iter().copied().min_by_key(|&cpu| fewest(cpu)).unwrap_or_default()
            }
            Steer::ByPart => {
                let (first, count) = self.hosts[part];
                CpuId(first + random.below(count.into()) as u16)
            }
        }
    }
}

/// Returns `count` distinct CPUs of the first `cpus` in `homes`, each set equally likely: the first
/// steps of a shuffle. Returns all of them if there are no more.
fn draw<'a>(
    random: &mut Random,
    homes: &'a mut [CpuId],
    cpus: usize,
    choices: usize,
) -> &'a [CpuId] {
    let choices = choices.min(cpus);
    for at in 0..choices {
        homes.swap(at, at + random.below((cpus - at) as u64) as usize);
    }
    &homes[..choices]
}

/// Returns consecutive CPUs for each part, in proportion to its share of the work, at least one; parts
/// beyond the CPUs share the last one.
fn hosts(mix: &Mix, cpus: usize) -> Vec<(u16, u16)> {
    let (parts, mut first) = (mix.parts().len(), 0);
    let host = |(i, part): (usize, &crate::workload::Part)| {
        let left = cpus.saturating_sub(first + (parts - 1 - i)).max(1);
        let wanted = (part.share * part.service.mean() / mix.mean() * cpus as f64).round() as usize;
        let count = if i + 1 == parts { left } else { wanted.clamp(1, left) };
        let begin = first.min(cpus - 1);
        first += count;
        (begin as u16, count as u16)
    };
    mix.parts().iter().enumerate().map(host).collect()
}

impl<P: Policy> Engine<'_, P> {
    /// Time zero: batch tasks start, clients send their first requests, and the first arrival is
    /// scheduled.
    pub(super) fn open(&mut self) -> Result<(), SimError> {
        self.connect();
        for i in 0..self.scenario.batch {
            let home = CpuId((i % self.cpus.len()) as u16);
            let attrs = TaskAttrs { class: Class::BE, ..TaskAttrs::default() };
            // However much is deducted, it ends at no reachable instant.
            let endless = Ns::MAX;
            let job = Job {
                kind: Kind::Batch,
                home,
                remaining: endless,
                number: u64::MAX,
                ..Job::default()
            };
            self.create(attrs, job);
        }
        if let Arrivals::Closed { tasks, .. } = self.scenario.arrivals {
            for _ in 0..tasks {
                if let Some((attrs, job)) = self.request(Kind::Client, None) {
                    self.create(attrs, job);
                }
            }
        }
        self.await_next()
    }

    /// The scheduled request arrives.
    pub(super) fn arrive(&mut self) -> Result<(), SimError> {
        let recorded = match &mut self.arriving.source {
            Source::Trace { next, .. } => next.take(),
            _ => None,
        };
        if let Some((attrs, job)) = self.request(Kind::Request, recorded) {
            self.create(attrs, job);
        }
        self.await_next()
    }

    fn await_next(&mut self) -> Result<(), SimError> {
        let next = match &mut self.arriving.source {
            Source::Open { gaps, random, next } => self.view.now + next.take(|| gaps.next(random)),
            Source::Closed => Ns::MAX,
            Source::Trace { rest, next } => {
                *next = rest
                    .next()
                    .transpose()?
                    .filter(|_| self.arriving.count < self.arriving.plan.end());
                next.map_or(Ns::MAX, |request| request.arrival)
            }
        };
        self.timetable.set(ARRIVALS, next);
        Ok(())
    }

    /// Returns the next request: its size, where it arrives, and its attributes for the policy; `None`
    /// if it is dropped.
    #[inline(always)]
    fn request(&mut self, kind: Kind, recorded: Option<TraceRequest>) -> Option<(TaskAttrs, Job)> {
        let flow = recorded.and_then(|request| request.connection);
        let (part, service, class) = match recorded {
            Some(request) => (request.kind, request.service, request.class),
            None => {
                let Arriving { sizes, next_sizes, .. } = &mut self.arriving;
                let (part, service) = next_sizes.take(|| self.scenario.mix.sample(sizes));
                (part, service, self.scenario.mix.parts()[part].class)
            }
        };
        let (kind, connection, home) = match self.senders.any(part) {
            Some((connection, cpu)) => (Kind::Connection, connection, cpu),
            None => (kind, 0, self.steer(kind, part, flow)?),
        };
        let number = self.arriving.count_one(self.in_system());
        let slower = self.preemption.slowdown_permille;
        let attrs = TaskAttrs { class, expected: Some(service), ..TaskAttrs::default() };
        let job = Job {
            kind,
            number,
            part: part as u32,
            connection,
            arrived: self.view.now,
            service,
            remaining: service + service * u64::from(slower) / 1000,
            home,
            ..Job::default()
        };
        Some((attrs, job))
    }

    #[inline(always)]
    fn create(&mut self, attrs: TaskAttrs, job: Job) {
        if job.kind == Kind::Connection {
            return self.receive(attrs, job);
        }
        let task = self.add(attrs, job);
        self.counts.arrivals += u64::from(job.kind != Kind::Batch);
        self.deliver(task, Enqueue::New);
    }

    #[inline(always)]
    pub(super) fn add(&mut self, attrs: TaskAttrs, job: Job) -> TaskId {
        let task = self.jobs.add(attrs, job);
        self.driver(job.home).init(task);
        task
    }

    /// Passes through the dispatcher, if there is one.
    pub(super) fn deliver(&mut self, task: TaskId, why: Enqueue) {
        match &mut self.dispatcher {
            Some(dispatcher) => {
                dispatcher.push_incoming(task, why);
                self.dispatcher_step();
            }
            None => self.admit(task, why),
        }
    }

    /// The client `task` has its answer and thinks.
    pub(super) fn sleep(&mut self, task: TaskId) {
        let Arrivals::Closed { think, .. } = &self.scenario.arrivals else { return };
        let until = self.view.now + think.sample(&mut self.arriving.thinking);
        self.arriving.slept += 1;
        self.arriving.sleepers.push(Reverse((until, self.arriving.slept, task)));
        self.await_sleeper();
    }

    fn await_sleeper(&mut self) {
        let next = self.arriving.sleepers.peek().map_or(Ns::MAX, |Reverse((until, _, _))| *until);
        self.timetable.set(SLEEPERS, next);
    }

    /// The client whose thinking ends first sends its next request.
    pub(super) fn wake_sleeper(&mut self) {
        let Some(Reverse((_, _, task))) = self.arriving.sleepers.pop() else { return };
        self.await_sleeper();
        let before = *self.jobs.get(task);
        let Some((attrs, next)) = self.request(Kind::Client, None) else { return };
        self.jobs.set_attrs(task, attrs);
        // It starts where it last ran, under the same identity.
        *self.jobs.get_mut(task) = Job { home: before.home, warm: true, born: before.born, ..next };
        self.counts.arrivals += 1;
        self.deliver(task, Enqueue::Wakeup);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn draws_are_distinct_and_uniform() {
        let (mut random, mut homes) =
            (Random::new(1, STEERING), (0..5).map(CpuId).collect::<Vec<_>>());
        let mut pairs = BTreeMap::new();
        for _ in 0..20_000 {
            let drawn = draw(&mut random, &mut homes, 5, 2);
            *pairs.entry((drawn[0], drawn[1])).or_insert(0) += 1;
        }
        assert_eq!(pairs.len(), 20, "each pair of two different ones: {pairs:?}");
        assert!(pairs.values().all(|&count| (850..1150).contains(&count)), "{pairs:?}");
    }

    #[test]
    fn as_many_candidates_as_cpus_are_all_cpus() {
        let (mut random, mut homes) =
            (Random::new(1, STEERING), (0..4).map(CpuId).collect::<Vec<_>>());
        for choices in [4, 5, u32::MAX as usize] {
            for _ in 0..1000 {
                let mut drawn = draw(&mut random, &mut homes, 4, choices).to_vec();
                drawn.sort();
                assert_eq!(drawn, [0, 1, 2, 3].map(CpuId));
            }
        }
    }
}
