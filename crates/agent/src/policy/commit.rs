//! Assignments become transactions, one group a round.

use super::cpus::Stage;
use super::thread::KernelState;
use super::{BACKOFF, Scheduler};
use crate::model::{Group, Outcome, Transaction};
use heddle_core::{Class, CpuId, Enqueue, Policy};

/// What to do after a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    /// A message is there or on its way: read, and try again.
    Read,
}

impl<P: Policy> Scheduler<'_, P> {
    /// Commits the chosen assignments. Returns how many succeeded, and how many failed because a message is
    /// unread.
    pub(super) fn commit(&mut self, scope: Option<CpuId>) -> (usize, usize) {
        self.retry_held();
        let chosen = self.in_scope(scope, &self.chosen);
        if chosen.is_empty() {
            return (0, 0);
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        batch.extend(chosen.iter().filter_map(|cpu| self.transaction(cpu, scope.is_some())));
        let committed = match P::GANG {
            true => self.commit_cores(&mut batch),
            false => self.backend.commit(&mut batch, Group::Each),
        };
        self.tally.counts.groups += 1;
        let unread = batch.iter().filter(|&made| self.outcome(made) == Next::Read).count();
        self.batch = batch;
        (committed, unread)
    }

    fn transaction(&self, cpu: CpuId, is_local: bool) -> Option<Transaction> {
        let task = self.cpus[cpu.index()].task?;
        let known = &self.threads[task.index()];
        let mut made = Transaction::new(task, known.tid, cpu, known.tseq);
        made.class = Class(known.class);
        if is_local {
            // The agent gives up its CPU to the thread, so it must not have missed a message.
            let read = &self.readers[cpu.index()];
            made.aseq = Some((read.id, read.aseq));
        }
        Some(made)
    }

    fn outcome(&mut self, made: &Transaction) -> Next {
        let cpu = made.cpu;
        self.tally.counts.count(made.outcome);
        match made.outcome {
            Outcome::Committed => self.note_commit(made),
            Outcome::AgentStale => return Next::Read,
            Outcome::Open | Outcome::Poisoned if P::GANG => {
                self.hold(cpu);
                let has_message = made.outcome == Outcome::Poisoned;
                return if has_message { Next::Read } else { Next::Nothing };
            }
            outcome if Self::awaits_message(outcome) => {
                self.force_off(cpu);
                self.set_stage(cpu, Stage::Awaiting);
                return Next::Read;
            }
            _ => self.note_refusal(made),
        }
        Next::Nothing
    }

    pub(super) fn note_commit(&mut self, made: &Transaction) {
        let (cpu, check_at) = (made.cpu, self.first_check());
        self.begin_turn(cpu, made.thread);
        let ran = self.total_run(made.thread);
        self.set_stage(cpu, Stage::Committed);
        self.check_at(cpu, check_at);
        let state = self.cpu(cpu);
        state.ran_before = ran;
        let before = state.before.take();
        let known = self.thread(made.thread);
        known.set_kernel_state(KernelState::Committed);
        known.on = cpu;
        if let Some(before) = before {
            self.start_leaving(before, cpu);
        }
    }

    /// The backend refused for a reason that no message will remove. Another round tries again a little
    /// later.
    fn note_refusal(&mut self, made: &Transaction) {
        self.retry_at = self.retry_at.min(self.view.now + BACKOFF);
        if made.outcome == Outcome::Affinity && !self.may_run(made.thread, made.cpu) {
            return self.affinity_changed(made.thread);
        }
        self.requeue(made.thread, Enqueue::CommitFailed);
    }
}
