//! Threads that CPUs take without the agent.

use super::super::words::{OWN_CPU, SOMEWHERE};
use super::super::{Kind, Phase, Seq, State};
use super::Arrival;
use super::kernel::{Kernel, Offered, contains};
use crate::Takers;
use heddle_core::TaskId;

impl Kernel {
    pub fn offer(&mut self, id: u32, thread: TaskId, tseq: Seq, takers: Takers) -> bool {
        let (Takers::Node(cpu) | Takers::Cpu(cpu)) = takers;
        let Some(cpu) = self.own_cpu(id, cpu) else { return false };
        let word = self.word(thread);
        let is_free = word.enclave == id && word.state == State::Parked && word.tseq == tseq;
        if self.enclave(id).word.phase != Phase::Active || !is_free {
            return false;
        }
        self.set_state(thread, State::Latched);
        self.threads[thread.index()].word.os_cpu = match takers {
            Takers::Node(_) => SOMEWHERE | u32::from(self.infos[cpu].node),
            Takers::Cpu(_) => SOMEWHERE | OWN_CPU | self.infos[cpu].os_id,
        };
        self.enclave_mut(id).offered.push(Offered { thread, takers });
        if self.arrival == Arrival::AtOnce {
            self.dispatch(cpu);
        }
        true
    }

    pub fn revoke(&mut self, id: u32, thread: TaskId) -> bool {
        let is_revoked = self.withdraw(id, thread);
        if is_revoked {
            self.set_state(thread, State::Parked);
        }
        is_revoked
    }

    /// Takes an offered thread from where CPUs find it; the caller decides its next state.
    pub fn withdraw(&mut self, id: u32, thread: TaskId) -> bool {
        let offered = &mut self.enclave_mut(id).offered;
        let at = offered.iter().position(|offered| offered.thread == thread);
        at.map(|at| offered.remove(at)).is_some()
    }

    /// Parks a thread that was offered and that the kernel took out of its queue for a moment.
    pub fn park_offered(&mut self, thread: TaskId) -> bool {
        let is_offered = self.withdraw(self.word(thread).enclave, thread);
        if is_offered {
            self.park(thread, Kind::ThreadPreempted, 1);
        }
        is_offered
    }

    /// Takes a thread for `cpu`: the one that the enclave's `pick_next` chooses, or that was offered first; to it
    /// alone, or to its node.
    pub fn take_offered(&mut self, cpu: usize) -> Option<TaskId> {
        let id = self.cpus[cpu].enclave;
        if id == 0 {
            return None;
        }
        let taken = self.choose_offered(id, cpu)?;
        self.withdraw(id, taken).then_some(taken)
    }

    fn choose_offered(&self, id: u32, cpu: usize) -> Option<TaskId> {
        let mut found = self.offered_to(id, cpu, true).chain(self.offered_to(id, cpu, false));
        let Some(pick_next) = self.enclave(id).pick_next else { return found.next() };
        let found: Vec<TaskId> = found.collect();
        let first = *found.first()?;
        Some(found.get(pick_next(&found)).copied().unwrap_or(first))
    }

    /// Returns the threads that `cpu` may take: those offered to it alone, or to its node.
    fn offered_to(&self, id: u32, cpu: usize, is_own: bool) -> impl Iterator<Item = TaskId> + '_ {
        let offered = &self.enclave(id).offered;
        let node = |cpu: usize| self.infos[cpu].node;
        let may_take = move |takers: Takers| match takers {
            Takers::Cpu(one) => is_own && one.index() == cpu,
            Takers::Node(one) => !is_own && node(one.index()) == node(cpu),
        };
        offered
            .iter()
            .filter(move |one| may_take(one.takers))
            .map(|one| one.thread)
            .filter(move |thread| contains(&self.threads[thread.index()].affinity, cpu))
    }

    pub fn is_offered(&self, id: u32, thread: TaskId) -> bool {
        self.enclave(id).offered.iter().any(|offered| offered.thread == thread)
    }
}
