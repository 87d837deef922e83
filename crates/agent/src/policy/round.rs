//! A round: read, decide, commit.

use super::{PASSES, PATIENCE, Scheduler};
use crate::model::{Kind, Message, Outcome};
use heddle_core::{CpuId, CpuSet, Ns, Policy};

/// The result of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Messages read.
    pub messages: usize,
    /// Transactions that succeeded.
    pub committed: usize,
    /// More work can be done at once.
    pub is_unfinished: bool,
    /// When the next round is due if no message comes before.
    pub next: Option<Ns>,
    /// CPUs whose own agents have work to do (local agents only).
    pub nudged: CpuSet,
}

impl<P: Policy> Scheduler<'_, P> {
    /// Runs a round of a central agent, which decides for all CPUs.
    pub fn round(&mut self) -> Round {
        self.work(None)
    }

    /// Runs a round of the agent of `cpu`, which decides only for that CPU and reads that CPU's message
    /// queue.
    pub fn round_of(&mut self, cpu: CpuId) -> Round {
        self.work(Some(cpu))
    }

    /// Decides and commits until nothing fails because of an unread message, but at most a few times (P5).
    fn work(&mut self, scope: Option<CpuId>) -> Round {
        let mut round = Round::default();
        self.tally.counts.rounds += 1;
        self.retry_at = Ns::MAX;
        self.nudged = CpuSet::EMPTY;
        for _ in 0..PASSES {
            let messages = self.drain(scope, self.messages.saturating_sub(round.messages));
            round.messages += messages;
            self.decide(scope);
            let (committed, failed) = self.commit(scope);
            round.committed += committed;
            if failed == 0 {
                break;
            }
        }
        round.is_unfinished =
            round.messages >= self.messages || !self.in_scope(scope, &self.chosen).is_empty();
        round.next = self.next_due(scope);
        round.nudged = self.nudged;
        round
    }

    fn decide(&mut self, scope: Option<CpuId>) {
        self.forget_due_retries(scope);
        self.heal(scope);
        self.fill(scope);
        self.make_way_for_woken(scope);
        self.check_due_quanta(scope);
        self.rescue(scope);
        self.offer_upcoming(scope);
        self.nudge_others(scope);
    }

    /// Reads up to `most` messages.
    fn drain(&mut self, scope: Option<CpuId>, most: usize) -> usize {
        self.woken.clear();
        let at = scope.map_or(0, CpuId::index);
        let (mut count, mut last) = (0, self.readers[at].aseq);
        while count < most
            && let Some(message) = self.backend.next(self.readers[at].id)
        {
            count += 1;
            last = last.max(message.aseq);
            // Whatever the writer says, it was not in the future.
            let message = Message { at: message.at.min(self.backend.now()), ..message };
            // A thread is charged until it left its CPU, not until the agent had the time to read of it.
            self.view.now = self.view.now.max(message.at);
            match message.kind {
                Kind::TimerTick | Kind::CpuAvailable | Kind::CpuBusy => {}
                _ => self.handle_message(&message),
            }
        }
        self.view.now = self.backend.now();
        self.tally.counts.messages += count as u64;
        let queue = self.backend.queue(self.readers[at].id);
        self.readers[at].advance(last, &queue);
        if queue.lost != self.readers[at].lost {
            self.adopt();
        }
        count
    }

    /// Returns those CPUs of `set` for which this agent decides.
    pub(super) fn in_scope(&self, scope: Option<CpuId>, set: &CpuSet) -> CpuSet {
        let Some(cpu) = scope else { return *set };
        let mut own = CpuSet::EMPTY;
        own.insert(cpu);
        own.and(set)
    }

    /// Reads the status words of threads whose message did not come in time (P3).
    fn heal(&mut self, scope: Option<CpuId>) {
        let (awaiting, now) = (self.in_scope(scope, &self.awaiting), self.view.now);
        for cpu in awaiting.iter() {
            let state = &mut self.cpus[cpu.index()];
            if state.since + PATIENCE > now {
                continue;
            }
            state.since = now;
            let task = state.task;
            self.reschedule(cpu);
            let Some(task) = task else { continue };
            self.tally.counts.overdue_messages += 1;
            self.resync(task);
        }
    }

    fn next_due(&self, scope: Option<CpuId>) -> Option<Ns> {
        let first = match scope {
            Some(cpu) => self.cpus[cpu.index()].deadline(),
            None => self.deadlines.first(),
        };
        Some(first.min(self.retry_at)).filter(|&at| at != Ns::MAX)
    }

    /// Local agents: wakes the agents of idle CPUs that could run what waits.
    fn nudge_others(&mut self, scope: Option<CpuId>) {
        let Some(cpu) = scope else { return };
        let mut idle = self.view.idle();
        idle.remove(cpu);
        if !self.has_waiting() || idle.is_empty() {
            return;
        }
        for other in idle.iter() {
            if P::BALANCES || self.view.waiting(Self::queue_of(other)) > 0 {
                self.nudged.insert(other);
            }
        }
    }

    pub(super) fn awaits_message(outcome: Outcome) -> bool {
        matches!(
            outcome,
            Outcome::Stale | Outcome::NoThread | Outcome::NotRunnable | Outcome::OnCpu
        )
    }
}
