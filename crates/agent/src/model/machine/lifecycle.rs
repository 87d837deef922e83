//! The beginning and end of enclaves, and the passing of time.

use super::super::{EnclaveWord, Kind, Phase};
use super::kernel::{Enclave, Kernel};
use super::{MachineError, Spec};
use crate::BackendError;
use crate::transition::transition;
use heddle_core::Ns;

impl Kernel {
    pub fn make(&mut self, spec: Spec) -> Result<u32, MachineError> {
        self.check(&spec)?;
        let id = self.enclaves.len() as u32 + 1;
        let queue = self.add_queue(id, spec.ring, true);
        for cpu in &spec.cpus {
            let cpu = &mut self.cpus[cpu.index()];
            (cpu.enclave, cpu.queue) = (id, queue);
        }
        let deadline = self.now + spec.grace;
        self.due = self.due.min(deadline);
        let word = EnclaveWord { phase: Phase::Waiting, ..EnclaveWord::default() };
        self.enclaves.push(Enclave { word, spec, queue, deadline, offered: Vec::new() });
        Ok(id)
    }

    fn check(&self, spec: &Spec) -> Result<(), MachineError> {
        for &cpu in &spec.cpus {
            let found = self.cpus.get(cpu.index()).ok_or(MachineError::NoCpu(cpu))?;
            if found.enclave != 0 {
                return Err(MachineError::Taken(cpu));
            }
        }
        if spec.cpus.is_empty() { Err(MachineError::Empty) } else { Ok(()) }
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
