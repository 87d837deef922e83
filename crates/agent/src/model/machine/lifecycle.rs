//! The beginning and end of enclaves, and the passing of time.

use super::super::{EnclaveWord, Kind, Phase, QueueId};
use super::kernel::{Enclave, Kernel};
use super::{MachineError, Spec};
use crate::BackendError;
use crate::transition::transition;
use heddle_core::{CpuId, Ns};

impl Kernel {
    pub fn make(&mut self, spec: Spec) -> Result<u32, MachineError> {
        let id = self.enclaves.len() as u32 + 1;
        self.check(id, &spec.cpus)?;
        let queue = self.add_queue(id, spec.ring, true);
        self.take_cpus(id, queue, &spec.cpus);
        let deadline = self.now + spec.grace;
        self.due = self.due.min(deadline);
        let word = EnclaveWord { phase: Phase::Waiting, ..EnclaveWord::default() };
        let offered = Vec::new();
        self.enclaves.push(Enclave { word, spec, queue, deadline, offered, pick_next: None });
        Ok(id)
    }

    /// Checks that enclave `id` can have `cpus`.
    fn check(&self, id: u32, cpus: &[CpuId]) -> Result<(), MachineError> {
        for &cpu in cpus {
            let found = self.cpus.get(cpu.index()).ok_or(MachineError::NoCpu(cpu))?;
            if ![0, id].contains(&found.enclave) {
                return Err(MachineError::Taken(cpu));
            }
        }
        if cpus.is_empty() { Err(MachineError::Empty) } else { Ok(()) }
    }

    fn take_cpus(&mut self, id: u32, queue: QueueId, cpus: &[CpuId]) {
        for cpu in cpus {
            let cpu = &mut self.cpus[cpu.index()];
            if cpu.enclave != id {
                (cpu.enclave, cpu.queue) = (id, queue);
            }
        }
    }

    /// Gives the enclave other CPUs. Threads that run on those that it loses, or are latched to them, are parked, and
    /// so are all that were offered: the CPUs to which they were may be lost.
    pub fn resize(&mut self, id: u32, cpus: Vec<CpuId>) -> Result<(), MachineError> {
        if self.enclave(id).word.phase == Phase::Free {
            return Err(MachineError::Gone);
        }
        self.check(id, &cpus)?;
        self.take_cpus(id, self.enclave(id).queue, &cpus);
        while let Some(offered) = self.enclave(id).offered.first() {
            self.park_offered(offered.thread);
        }
        let before = std::mem::replace(&mut self.enclave_mut(id).spec.cpus, cpus);
        let lost: Vec<CpuId> =
            before.into_iter().filter(|cpu| !self.enclave(id).spec.cpus.contains(cpu)).collect();
        for cpu in lost {
            self.lose(cpu.index());
        }
        self.run_orphans(id);
        Ok(())
    }

    fn lose(&mut self, cpu: usize) {
        self.cpus[cpu].kick = false;
        self.evict(cpu);
        if let Some(thread) = self.unlatch(cpu) {
            self.park(thread, Kind::ThreadPreempted, 1);
        }
        self.cpus[cpu].enclave = 0;
    }

    pub fn attach(&mut self, id: u32) -> Result<(), BackendError> {
        let enclave = self.enclave_mut(id);
        if enclave.word.phase != Phase::Waiting {
            return Err(BackendError::WrongPhase(enclave.word.phase));
        }
        transition(&mut enclave.word.phase, Phase::Active);
        enclave.word.generation += 1;
        enclave.word.agent = Some(100 + enclave.word.generation as u32);
        self.due = self.due.min(self.end_of(id).unwrap_or(Ns::MAX));
        Ok(())
    }

    pub fn detach(&mut self, id: u32) {
        let now = self.now;
        let enclave = self.enclave_mut(id);
        if enclave.word.phase == Phase::Active {
            transition(&mut enclave.word.phase, Phase::Waiting);
            enclave.word.agent = None;
            enclave.deadline = now + enclave.spec.grace;
            self.due = self.due.min(self.enclave(id).deadline);
        }
    }

    /// Makes the enclave an orphan if it is in `phase`.
    pub fn end(&mut self, id: u32, phase: Phase) {
        if self.enclave(id).word.phase == phase {
            self.orphan(id);
        }
    }

    pub fn orphan(&mut self, id: u32) {
        let enclave = self.enclave_mut(id);
        if matches!(enclave.word.phase, Phase::Free | Phase::Orphan) {
            return;
        }
        transition(&mut enclave.word.phase, Phase::Orphan);
        enclave.word.agent = None;
        for cpu in enclave.spec.cpus.clone() {
            if self.cpus[cpu.index()].word.current.is_some() {
                self.limit(cpu.index(), None);
            }
            self.arrive(cpu.index());
        }
    }

    pub fn give_back(&mut self, id: u32) {
        if self.enclave(id).word.phase == Phase::Free {
            return;
        }
        for thread in self.threads_of(id) {
            self.leave(thread, Kind::ThreadDeparted);
        }
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.enclave == id) {
            cpu.enclave = 0;
        }
        for queue in self.queues.iter_mut().filter(|queue| queue.enclave == id) {
            queue.enclave = 0;
            queue.ring.clear();
        }
        let word = &mut self.enclave_mut(id).word;
        transition(&mut word.phase, Phase::Free);
        *word = EnclaveWord::default();
    }

    /// Time goes from one due event to the next, so the result does not depend on the length of steps (M2).
    pub fn set_time(&mut self, now: Ns) {
        while self.due <= now {
            self.now = self.now.max(self.due);
            self.do_due_events();
            self.due = self.next_due();
        }
        self.now = self.now.max(now);
        self.bell = true;
    }

    fn do_due_events(&mut self) {
        let now = self.now;
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].until <= now {
                self.evict(cpu);
                self.dispatch(cpu);
            }
        }
        for id in 1..=self.enclaves.len() as u32 {
            if self.end_of(id).is_some_and(|end| end <= now) {
                self.orphan(id);
            }
        }
    }

    /// Returns when the enclave becomes an orphan if nothing happens before.
    fn end_of(&self, id: u32) -> Option<Ns> {
        let enclave = self.enclave(id);
        match enclave.word.phase {
            Phase::Waiting => Some(enclave.deadline).filter(|&at| at != Ns::MAX),
            Phase::Active => Some(self.waits_since(id)? + enclave.spec.patience?),
            Phase::Free | Phase::Orphan => None,
        }
    }

    fn next_due(&self) -> Ns {
        let slices = self.cpus.iter().map(|cpu| cpu.until);
        let ends = (1..=self.enclaves.len() as u32).filter_map(|id| self.end_of(id));
        slices.chain(ends).min().unwrap_or(Ns::MAX)
    }

    /// A thread has begun to wait: its patience may be the first to end.
    pub fn watch_patience(&mut self, id: u32) {
        if let Some(patience) = self.enclave(id).spec.patience {
            self.due = self.due.min(self.now + patience);
        }
    }
}
