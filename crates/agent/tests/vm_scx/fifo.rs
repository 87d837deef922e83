//! A minimal agent: runnable threads go to the next free CPU, first in, first out.

use super::testbed::{HANG, Testbed};
use heddle_agent::Backend as _;
use heddle_agent::model::{Group, Kind, Message, Outcome, State, Transaction};
use heddle_core::{CpuId, Ns, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// The agent's memory.
#[derive(Default)]
pub struct Fifo {
    /// Runnable threads.
    queue: VecDeque<TaskId>,
    /// The outcomes of all transactions.
    pub outcomes: BTreeMap<String, u64>,
    /// All messages by kind.
    pub kinds: BTreeMap<String, u64>,
    lost: u64,
}

impl Fifo {
    fn handle(&mut self, testbed: &Testbed, message: &Message) {
        *self.kinds.entry(format!("{:?}", message.kind)).or_default() += 1;
        let runnable = match message.kind {
            Kind::ThreadCreated => message.info == 1,
            Kind::ThreadPreempted | Kind::ThreadYield | Kind::ThreadWakeup => true,
            _ => false,
        };
        if runnable && !self.queue.contains(&message.thread) {
            self.queue.push_back(message.thread);
        }
        let lost = testbed.scx.queue(testbed.scx.default_queue()).lost;
        if lost > self.lost {
            self.lost = lost;
            self.read_words(testbed);
        }
    }

    /// The status words have what was lost.
    fn read_words(&mut self, testbed: &Testbed) {
        let parked = |task: &TaskId| testbed.scx.thread(*task).state == State::Parked;
        for task in testbed.scx.threads().into_iter().filter(parked) {
            if !self.queue.contains(&task) {
                self.queue.push_back(task);
            }
        }
    }

    /// Reads all messages and fills all free CPUs. Quanta: a thread that has run for 4 ms gives way to one that
    /// waits.
    pub fn step(&mut self, testbed: &Testbed) {
        while let Some(message) = testbed.scx.next(testbed.scx.default_queue()) {
            self.handle(testbed, &message);
        }
        for cpu in (0..testbed.scx.cpus().len() as u16).map(CpuId) {
            let word = testbed.scx.cpu(cpu);
            let now = testbed.scx.now();
            let ran = word
                .current
                .map_or(Ns(0), |task| Ns(now.0.saturating_sub(testbed.scx.thread(task).on_at.0)));
            let free = word.latched.is_none() && (word.current.is_none() || ran > Ns(4_000_000));
            if free && let Some(task) = self.queue.pop_front() {
                self.commit(testbed, task, cpu);
            }
        }
    }

    fn commit(&mut self, testbed: &Testbed, task: TaskId, cpu: CpuId) {
        let word = testbed.scx.thread(task);
        if word.state != State::Parked {
            return;
        }
        let mut one = [Transaction::new(task, word.tid, cpu, word.tseq)];
        testbed.scx.commit(&mut one, Group::Each);
        *self.outcomes.entry(format!("{:?}", one[0].outcome)).or_default() += 1;
        // A message will tell what made it stale; but a message of a new affinity does not say that the thread can
        // run, which is known already.
        let again = [Outcome::Affinity, Outcome::Again, Outcome::CpuOffline, Outcome::Stale];
        if again.contains(&one[0].outcome) && !self.queue.contains(&task) {
            self.queue.push_back(task);
        }
    }

    /// Runs until the condition holds.
    pub fn run(&mut self, testbed: &Testbed, what: &str, mut so: impl FnMut() -> bool) {
        let end = Instant::now() + HANG;
        while !so() {
            assert!(Instant::now() < end, "{what}: not in {HANG:?}; {:?}", self.outcomes);
            self.step(testbed);
            testbed.scx.wait(testbed.scx.default_queue(), Some(testbed.scx.now() + Ns(1_000_000)));
        }
    }
}
