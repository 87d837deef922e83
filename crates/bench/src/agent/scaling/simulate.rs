//! One point: an agent that is busy all the time, threads that run for a fixed time, and the clock that both share.

use super::stopwatch::Stopwatch;
use super::{Costs, POLICY, ScalingOptions};
use heddle_agent::Backend as _;
use heddle_agent::model::machine::{Machine, Spec};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_core::{CpuId, Ns, TaskId};
use heddle_policies::{Fifo, build};
use heddle_sys::clock;
use std::io;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Simulated {
    /// Transactions per second of simulated time.
    pub(super) rate: f64,
    /// The agent's own real time per transaction.
    pub(super) decision_ns: f64,
    /// Transactions in a group.
    pub(super) group_size: f64,
}

/// Threads per CPU: some are always waiting.
const THREADS: usize = 2;

/// Runs until the requested number of transactions is committed.
///
/// # Errors
/// Errors of the model.
pub(super) fn simulate(
    options: &ScalingOptions,
    costs: &Costs,
    cpus: u16,
) -> io::Result<Simulated> {
    simulate_with(options, costs, cpus, own_time)
}

/// The time of the agent's code in a round: the ticks of the round, less those spent in the model and in
/// timing its calls.
type OwnTime = fn(u64, u64, u64) -> Ns;

fn simulate_with(
    options: &ScalingOptions,
    costs: &Costs,
    cpus: u16,
    own_time: OwnTime,
) -> io::Result<Simulated> {
    let machine = Machine::flat(cpus.into());
    let enclave = machine.enclave(Spec::of((0..cpus).map(CpuId))).map_err(io::Error::other)?;
    let id = enclave.id();
    enclave.attach().map_err(io::Error::other)?;
    let watch = Stopwatch::new(enclave);
    let settings = Settings { threads: 4096, ..Settings::default() };
    let policy: Fifo = build(POLICY).map_err(io::Error::other)?;
    let mut agent = Scheduler::new(policy, &watch, settings);
    agent.adopt();
    for _ in 0..usize::from(cpus) * THREADS {
        machine.spawn(id, true);
    }
    let mut world = World::new(&machine, costs, options.work, cpus, own_time);
    // The first transactions fill the caches.
    for goal in [options.transactions / 10, options.transactions] {
        world.restart();
        while world.committed < goal {
            world.round(&mut agent, &watch);
        }
    }
    Ok(world.result())
}

struct World<'a> {
    machine: &'a Machine,
    costs: &'a Costs,
    work: Ns,
    /// The thread running on each CPU, and its end.
    runs: Vec<Option<(TaskId, Ns)>>,
    began: Ns,
    now: Ns,
    committed: u64,
    groups: u64,
    decided: Ns,
    own_time: OwnTime,
}

impl<'a> World<'a> {
    fn new(
        machine: &'a Machine,
        costs: &'a Costs,
        work: Ns,
        cpus: u16,
        own_time: OwnTime,
    ) -> World<'a> {
        World {
            machine,
            costs,
            work,
            runs: vec![None; cpus.into()],
            began: Ns::ZERO,
            now: Ns::ZERO,
            committed: 0,
            groups: 0,
            decided: Ns::ZERO,
            own_time,
        }
    }

    fn restart(&mut self) {
        (self.began, self.committed, self.groups, self.decided) = (self.now, 0, 0, Ns::ZERO);
    }

    /// Reports the threads that have ended, lets the agent decide, which advances time, and starts what it committed.
    fn round(&mut self, agent: &mut Scheduler<'_, Fifo>, watch: &Stopwatch) {
        self.end_work();
        watch.take();
        let begin = clock::ticks();
        let round = agent.round();
        let took = clock::ticks().wrapping_sub(begin);
        let (spent, calls, groups) = watch.take();
        let decided = (self.own_time)(took, spent, calls);
        self.decided += decided;
        self.groups += groups;
        self.committed += round.committed as u64;
        self.now += decided
            + self.costs.message * round.messages as u64
            + self.costs.group * groups
            + self.costs.transaction * round.committed as u64;
        self.begin_work();
        if round.committed == 0 && round.messages == 0 {
            self.now = self.now.max(self.next_end());
        }
        self.machine.set_time(self.now);
    }

    fn end_work(&mut self) {
        for run in &mut self.runs {
            if let Some((task, _)) = run.filter(|(_, until)| *until <= self.now) {
                self.machine.yield_now(task);
                *run = None;
            }
        }
    }

    fn begin_work(&mut self) {
        let until = self.now + self.costs.arrival + self.work;
        for (cpu, run) in self.runs.iter_mut().enumerate() {
            if run.is_none() {
                *run = self.machine.running(CpuId(cpu as u16)).map(|task| (task, until));
            }
        }
    }

    fn next_end(&self) -> Ns {
        self.runs.iter().flatten().map(|(_, until)| *until).min().unwrap_or(self.now + Ns(1))
    }

    fn result(&self) -> Simulated {
        let committed = self.committed.max(1) as f64;
        Simulated {
            rate: committed / (self.now - self.began).as_secs_f64(),
            decision_ns: self.decided.0 as f64 / committed,
            group_size: committed / self.groups.max(1) as f64,
        }
    }
}

/// The agent's own time, without the model's and without the stopwatch's overhead per call.
fn own_time(took: u64, spent: u64, calls: u64) -> Ns {
    let reading = clock::ns_to_ticks(Ns(reading_ns()));
    clock::ticks_to_ns(took.saturating_sub(spent).saturating_sub(calls * reading))
}

/// The part of a timed call outside its two clock readings: the length of one reading.
fn reading_ns() -> u64 {
    static READING: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *READING.get_or_init(|| {
        const READINGS: u32 = 10_000;
        let begin = clock::ticks();
        let last = (0..READINGS).fold(begin, |_, _| clock::ticks());
        clock::ticks_to_ns((last - begin) / u64::from(READINGS)).0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cpus_get_what_they_can_use() {
        let costs = Costs {
            message: Ns(0),
            group: Ns(0),
            transaction: Ns(0),
            arrival: Ns(0),
            ..Costs::all().remove(0)
        };
        let options = ScalingOptions {
            work: Ns::from_ms(100),
            transactions: 20,
            ..ScalingOptions::new(true)
        };
        // Two CPUs, a tenth of a second per run: twenty per second. The agent's measured time is replaced by
        // a microsecond.
        let found = simulate_with(&options, &costs, 2, |_, _, _| Ns::from_us(1)).unwrap();
        assert!((19.9..=20.1).contains(&found.rate), "{found:?}");
        assert!(found.group_size >= 1.0);
        // With the agent's time there are never more.
        let found = simulate(&options, &costs, 2).unwrap();
        assert!(found.rate > 0.0 && found.rate < 20.1 && found.decision_ns > 0.0, "{found:?}");
    }
}
