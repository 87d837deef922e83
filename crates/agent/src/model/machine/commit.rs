//! Transactions: checked, then carried out (ghOSt, section 3.2).

use super::super::{CpuOccupant, Group, Kind, Outcome, Phase, State, Transaction};
use super::Arrival;
use super::kernel::{Cpu, Kernel};
use heddle_core::{CpuId, TaskId};

impl Kernel {
    pub fn commit(&mut self, id: u32, transactions: &mut [Transaction], how: Group) -> usize {
        match how {
            Group::Each => self.commit_each(id, transactions),
            Group::AllOrNothing => self.commit_all(id, transactions),
        }
        let done = transactions.iter().filter(|one| one.outcome.is_committed()).count();
        let word = &mut self.enclave_mut(id).word;
        word.committed += done as u64;
        word.failed += (transactions.len() - done) as u64;
        done
    }

    /// Commits one after the other: a later transaction sees what an earlier one did.
    fn commit_each(&mut self, id: u32, transactions: &mut [Transaction]) {
        for one in transactions {
            one.outcome = self.check_one(id, one);
            if one.outcome.is_committed() {
                self.carry_out(one);
            }
        }
    }

    fn commit_all(&mut self, id: u32, transactions: &mut [Transaction]) {
        for at in 0..transactions.len() {
            let (before, one) = (&transactions[..at], &transactions[at]);
            let outcome = self.check_one(id, one).and(|| check_against(before, one));
            transactions[at].outcome = outcome;
        }
        if transactions.iter().all(|one| one.outcome.is_committed()) {
            transactions.iter().for_each(|one| self.carry_out(one));
            return;
        }
        let good = transactions.iter_mut().filter(|one| one.outcome.is_committed());
        good.for_each(|one| one.outcome = Outcome::Poisoned);
    }

    /// Returns the outcome that the transaction would have, in the order in which the backends check.
    fn check_one(&mut self, id: u32, one: &Transaction) -> Outcome {
        if self.enclave(id).word.phase != Phase::Active {
            return Outcome::NotYours;
        }
        self.check_thread(id, one)
            .and(|| self.check_numbers(id, one))
            .and(|| self.check_state(one))
            .and(|| self.check_cpu(one))
    }

    fn check_thread(&self, id: u32, one: &Transaction) -> Outcome {
        let word = self.word(one.thread);
        let is_foreign = |cpu: &Cpu| cpu.enclave != id;
        match () {
            () if word.state == State::Free || word.tid != one.tid => Outcome::NoThread,
            () if word.enclave != id => Outcome::NotYours,
            () if self.cpus.get(one.cpu.index()).is_some_and(is_foreign) => Outcome::NotYours,
            () => Outcome::Committed,
        }
    }

    fn check_numbers(&mut self, id: u32, one: &Transaction) -> Outcome {
        if one.tseq.is_some_and(|tseq| tseq != self.word(one.thread).tseq) {
            return Outcome::Stale;
        }
        let Some((queue, aseq)) = one.aseq else { return Outcome::Committed };
        match self.queue_of(id, queue) {
            Ok(queue) if queue.word.aseq == aseq => Outcome::Committed,
            Ok(_) => Outcome::AgentStale,
            Err(_) => Outcome::Invalid,
        }
    }

    fn check_state(&self, one: &Transaction) -> Outcome {
        match self.word(one.thread).state {
            State::Parked => Outcome::Committed,
            State::Blocked => Outcome::NotRunnable,
            State::Latched | State::OnCpu => Outcome::OnCpu,
            State::Free => Outcome::NoThread,
        }
    }

    fn check_cpu(&self, one: &Transaction) -> Outcome {
        let Some(cpu) = self.cpus.get(one.cpu.index()) else { return Outcome::Invalid };
        let above = matches!(cpu.word.occupant, CpuOccupant::Ordinary | CpuOccupant::Realtime);
        match () {
            () if !self.threads[one.thread.index()].affinity.contains(one.cpu) => Outcome::Affinity,
            () if !cpu.word.online => Outcome::CpuOffline,
            () if one.only_free && above => Outcome::CpuBusy,
            // A thread past recall cannot be unlatched for another.
            () if cpu.direct => Outcome::Again,
            () => Outcome::Committed,
        }
    }

    /// Returns the position of one of the enclave's CPUs among the machine's; none if it is not, or no longer, the
    /// enclave's.
    pub fn own_cpu(&self, id: u32, cpu: CpuId) -> Option<usize> {
        self.cpus.get(cpu.index()).filter(|cpu| cpu.enclave == id).map(|_| cpu.index())
    }

    fn carry_out(&mut self, one: &Transaction) {
        let cpu = one.cpu.index();
        if let Some(old) = self.unlatch(cpu) {
            self.park(old, Kind::ThreadPreempted, 1);
        }
        self.put(one.thread, cpu);
        self.set_state(one.thread, State::Latched);
        self.threads[one.thread.index()].slice = one.slice;
        let at = &mut self.cpus[cpu];
        at.word.latched = Some(one.thread);
        at.direct = one.direct;
        at.kick |= one.preempt && at.word.current.is_some();
        if self.arrival == Arrival::AtOnce {
            self.arrive(cpu);
        }
    }

    pub fn recall(&mut self, id: u32, cpu: CpuId) -> Option<TaskId> {
        let cpu = self.own_cpu(id, cpu)?;
        if self.cpus[cpu].direct {
            return None;
        }
        let thread = self.unlatch(cpu)?;
        self.park(thread, Kind::ThreadPreempted, 1);
        self.run_orphans(id);
        Some(thread)
    }

    pub fn preempt(&mut self, id: u32, cpu: CpuId) -> bool {
        let Some(cpu) = self.own_cpu(id, cpu) else { return false };
        let runs = self.cpus[cpu].word.current.is_some();
        self.cpus[cpu].kick |= runs;
        if runs && self.arrival == Arrival::AtOnce {
            self.arrive(cpu);
        }
        runs
    }
}

/// Whether `one` is compatible with those `before` it.
fn check_against(before: &[Transaction], one: &Transaction) -> Outcome {
    match () {
        () if before.iter().any(|other| other.thread == one.thread) => Outcome::OnCpu,
        () if before.iter().any(|other| other.cpu == one.cpu) => Outcome::Invalid,
        () => Outcome::Committed,
    }
}

impl Outcome {
    /// Runs the next check if this one found nothing.
    fn and(self, next: impl FnOnce() -> Outcome) -> Outcome {
        if self.is_committed() { next() } else { self }
    }
}
