//! An agent with no opinion: what can run goes to the next CPU that has nothing, first in, first out.

use super::bench::{Bench, HANG};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Message, Outcome, State, Transaction};
use heddle_core::{CpuId, Ns, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// The agent's memory.
#[derive(Default)]
pub struct Fifo {
    /// Threads that can run.
    queue: VecDeque<TaskId>,
    /// What came of all transactions.
    pub outcomes: BTreeMap<String, u64>,
    /// All messages by kind.
    pub kinds: BTreeMap<String, u64>,
    lost: u64,
}

impl Fifo {
    fn news(&mut self, bench: &Bench, message: &Message) {
        *self.kinds.entry(format!("{:?}", message.kind)).or_default() += 1;
        let runnable = match message.kind {
            Kind::ThreadCreated => message.info == 1,
            Kind::ThreadPreempted | Kind::ThreadYield | Kind::ThreadWakeup => true,
            _ => false,
        };
        if runnable && !self.queue.contains(&message.thread) {
            self.queue.push_back(message.thread);
        }
        let lost = bench.scx.queue(bench.scx.default_queue()).lost;
        if lost > self.lost {
            self.lost = lost;
            self.read_words(bench);
        }
    }

    /// What was lost is in the status words.
    fn read_words(&mut self, bench: &Bench) {
        let parked = |task: &TaskId| bench.scx.thread(*task).state == State::Parked;
        for task in bench.scx.threads().into_iter().filter(parked) {
            if !self.queue.contains(&task) {
                self.queue.push_back(task);
            }
        }
    }

    /// Reads all news and fills all CPUs that are free. Quanta: the thread that has run for 4 ms gives way to one that waits.
    pub fn step(&mut self, bench: &Bench) {
        while let Some(message) = bench.scx.next(bench.scx.default_queue()) {
            self.news(bench, &message);
        }
        for cpu in (0..bench.scx.cpus().len() as u16).map(CpuId) {
            let word = bench.scx.cpu(cpu);
            let now = bench.scx.now();
            let ran = word
                .current
                .map_or(Ns(0), |task| Ns(now.0.saturating_sub(bench.scx.thread(task).on_at.0)));
            let free = word.latched.is_none() && (word.current.is_none() || ran > Ns(4_000_000));
            if free && let Some(task) = self.queue.pop_front() {
                self.commit(bench, task, cpu);
            }
        }
    }

    fn commit(&mut self, bench: &Bench, task: TaskId, cpu: CpuId) {
        let word = bench.scx.thread(task);
        if word.state != State::Parked {
            return;
        }
        let mut one = [Transaction::new(task, word.tid, cpu, word.tseq)];
        bench.scx.commit(&mut one, Group::Each);
        *self.outcomes.entry(format!("{:?}", one[0].outcome)).or_default() += 1;
        // What made it stale is told by a message, but one of a new affinity does not say that the thread can run: that is known already.
        let again = [Outcome::Affinity, Outcome::Again, Outcome::CpuOffline, Outcome::Stale];
        if again.contains(&one[0].outcome) && !self.queue.contains(&task) {
            self.queue.push_back(task);
        }
    }

    /// Until `so`.
    pub fn run(&mut self, bench: &Bench, what: &str, mut so: impl FnMut() -> bool) {
        let end = Instant::now() + HANG;
        while !so() {
            assert!(Instant::now() < end, "{what}: not in {HANG:?}; {:?}", self.outcomes);
            self.step(bench);
            bench.scx.wait(bench.scx.default_queue(), Some(bench.scx.now() + Ns(1_000_000)));
        }
    }
}
