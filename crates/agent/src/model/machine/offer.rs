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

    /// Takes the thread for `cpu` that was offered first: to it alone, or to its node.
    pub fn take_offered(&mut self, cpu: usize) -> Option<TaskId> {
        let id = self.cpus[cpu].enclave;
        if id == 0 {
            return None;
        }
        let offered = &self.enclave(id).offered;
        let finds = |is_own: bool| {
            offered.iter().position(|offered| {
                let may_take = match offered.takers {
                    Takers::Cpu(one) => is_own && one.index() == cpu,
                    Takers::Node(one) => {
                        !is_own && self.infos[one.index()].node == self.infos[cpu].node
                    }
                };
                may_take && contains(&self.threads[offered.thread.index()].affinity, cpu)
            })
        };
        let at = finds(true).or_else(|| finds(false))?;
        Some(self.enclave_mut(id).offered.remove(at).thread)
    }

    pub fn is_offered(&self, id: u32, thread: TaskId) -> bool {
        self.enclave(id).offered.iter().any(|offered| offered.thread == thread)
    }
}
