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
    /// Threads that got a CPU, per second of simulated time: transactions, and threads taken.
    pub(super) rate: f64,
    /// The agent's own real time for each of them.
    pub(super) decision_ns: f64,
    /// Transactions in a group.
    pub(super) group_size: f64,
    /// The share of those that did not wait for the agent: their CPUs took them.
    pub(super) taken: f64,
    /// How long a CPU stood still between two threads, on average.
    pub(super) gap_ns: f64,
}

/// Threads per CPU: some are always waiting.
const THREADS: usize = 2;

/// Runs until the requested number of threads have got a CPU. With `fast_path`, CPUs take what the agent has offered.
///
/// # Errors
/// Errors of the model.
pub(super) fn simulate(
    options: &ScalingOptions,
    costs: &Costs,
    cpus: u16,
    fast_path: bool,
) -> io::Result<Simulated> {
    simulate_with(options, costs, cpus, fast_path, own_time)
}

/// The time of the agent's code in a round: the ticks of the round, less those spent in the model and in
/// timing its calls.
type OwnTime = fn(u64, u64, u64) -> Ns;

fn simulate_with(
    options: &ScalingOptions,
    costs: &Costs,
    cpus: u16,
    fast_path: bool,
    own_time: OwnTime,
) -> io::Result<Simulated> {
    let machine = Machine::flat(cpus.into());
    let enclave = machine.enclave(Spec::of((0..cpus).map(CpuId))).map_err(io::Error::other)?;
    let id = enclave.id();
    enclave.attach().map_err(io::Error::other)?;
    let watch = Stopwatch::new(enclave);
    let settings = Settings { threads: 4096, fast_path, ..Settings::default() };
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
        while world.committed + world.taken < goal {
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
    /// Since when each CPU has had nothing to run.
    free: Vec<Ns>,
    began: Ns,
    now: Ns,
    committed: u64,
    taken: u64,
    gaps: Ns,
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
            free: vec![Ns::ZERO; cpus.into()],
            began: Ns::ZERO,
            now: Ns::ZERO,
            committed: 0,
            taken: 0,
            gaps: Ns::ZERO,
            groups: 0,
            decided: Ns::ZERO,
            own_time,
        }
    }

    fn restart(&mut self) {
        self.began = self.now;
        (self.committed, self.taken, self.groups) = (0, 0, 0);
        (self.decided, self.gaps) = (Ns::ZERO, Ns::ZERO);
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

    /// Ends the work that is over by now, in the order of time. A CPU that has an offer goes on with that at once.
    fn end_work(&mut self) {
        let over = |run: &Option<(TaskId, Ns)>| run.filter(|&(_, until)| until <= self.now);
        let mut ended: Vec<(Ns, usize, TaskId)> = Vec::new();
        for (cpu, run) in self.runs.iter().enumerate() {
            ended.extend(over(run).map(|(task, until)| (until, cpu, task)));
        }
        ended.sort_unstable();
        for (until, cpu, task) in ended {
            self.machine.yield_now(task);
            self.free[cpu] = until;
            self.runs[cpu] = self.machine.running(CpuId(cpu as u16)).map(|task| {
                self.taken += 1;
                self.gaps += self.costs.switch;
                (task, until + self.costs.switch + self.work)
            });
        }
    }

    fn begin_work(&mut self) {
        let begin = self.now + self.costs.arrival;
        for (cpu, run) in self.runs.iter_mut().enumerate() {
            if run.is_none() {
                *run = self.machine.running(CpuId(cpu as u16)).map(|task| {
                    self.gaps += begin - self.free[cpu];
                    (task, begin + self.work)
                });
            }
        }
    }

    fn next_end(&self) -> Ns {
        self.runs.iter().flatten().map(|(_, until)| *until).min().unwrap_or(self.now + Ns(1))
    }

    fn result(&self) -> Simulated {
        let picks = (self.committed + self.taken).max(1) as f64;
        Simulated {
            rate: picks / (self.now - self.began).as_secs_f64(),
            decision_ns: self.decided.0 as f64 / picks,
            group_size: self.committed as f64 / self.groups.max(1) as f64,
            taken: self.taken as f64 / picks,
            gap_ns: self.gaps.0 as f64 / picks,
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
        let found = simulate_with(&options, &costs, 2, false, |_, _, _| Ns::from_us(1)).unwrap();
        assert!((19.9..=20.1).contains(&found.rate), "{found:?}");
        assert!(found.group_size >= 1.0);
        assert_eq!(found.taken, 0.0);
        // Of a thread's run nothing is lost if the next one is offered.
        let fast = simulate_with(&options, &costs, 2, true, |_, _, _| Ns::from_us(1)).unwrap();
        assert!(fast.taken > 0.8 && fast.gap_ns < found.gap_ns, "{fast:?} {found:?}");
        // With the agent's time there are never more.
        let found = simulate(&options, &costs, 2, false).unwrap();
        assert!(found.rate > 0.0 && found.rate < 20.1 && found.decision_ns > 0.0, "{found:?}");
    }
}
