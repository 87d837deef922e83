//! Seats become transactions, one group a round.

use super::cpus::Stage;
use super::table::Is;
use super::{BACKOFF, Scheduler};
use crate::model::{Group, Outcome, Transaction};
use heddle_core::{Class, CpuId, Enqueue, Policy};

/// What is to be done after a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    /// News is there or on its way: read, and try again.
    Read,
}

impl<P: Policy> Scheduler<'_, P> {
    /// Commits the seats that were chosen: how many succeeded, and how many failed for want of news.
    pub(super) fn commit(&mut self, scope: Option<CpuId>) -> (usize, usize) {
        self.take_up_held();
        let chosen = self.own_of(scope, &self.chosen);
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
        let unread = batch.iter().filter(|&made| self.outcome(made) == After::Read).count();
        self.batch = batch;
        (committed, unread)
    }

    fn transaction(&self, cpu: CpuId, is_local: bool) -> Option<Transaction> {
        let task = self.cpus[cpu.index()].task?;
        let known = &self.threads[task.index()];
        let mut made = Transaction::new(task, known.tid, cpu, known.tseq);
        made.class = Class(known.class);
        if is_local {
            // The agent gives up its CPU to the thread, so it must not have missed anything.
            let read = &self.reads[cpu.index()];
            made.aseq = Some((read.id, read.aseq));
        }
        Some(made)
    }

    fn outcome(&mut self, made: &Transaction) -> After {
        let cpu = made.cpu;
        self.tally.counts.count(made.outcome);
        match made.outcome {
            Outcome::Committed => self.given(made),
            Outcome::AgentStale => return After::Read,
            Outcome::Open | Outcome::Poisoned if P::GANG => {
                self.hold(cpu);
                let is_news = made.outcome == Outcome::Poisoned;
                return if is_news { After::Read } else { After::Nothing };
            }
            outcome if Self::is_waiting_for_news(outcome) => {
                self.force(cpu);
                let now = self.view.now;
                let state = self.cpu(cpu);
                (state.stage, state.since) = (Stage::Awaiting, now);
                self.chosen.remove(cpu);
                self.awaiting.insert(cpu);
                return After::Read;
            }
            _ => self.refused(made),
        }
        After::Nothing
    }

    pub(super) fn given(&mut self, made: &Transaction) {
        let (cpu, now, look) = (made.cpu, self.view.now, self.first_look());
        self.turn_begins(cpu, made.thread);
        let ran = self.run_in_all(made.thread);
        self.chosen.remove(cpu);
        let state = self.cpu(cpu);
        (state.stage, state.since, state.look, state.ran_before) = (Stage::Given, now, look, ran);
        let before = state.before.take();
        let known = self.thread(made.thread);
        (known.is, known.on) = (Is::Given, cpu);
        if let Some(before) = before {
            self.depart(before, cpu);
        }
    }

    /// The backend would not, whatever the news. Another round tries again, a little later.
    fn refused(&mut self, made: &Transaction) {
        self.retry_at = self.retry_at.min(self.view.now + BACKOFF);
        if made.outcome == Outcome::Affinity && !self.may_run(made.thread, made.cpu) {
            return self.affinity_changed(made.thread);
        }
        self.requeue(made.thread, Enqueue::CommitFailed);
    }
}
