//! Enclaves that grow and shrink while they live. Their guardian does it, and replaces the agent in between: an agent
//! knows the CPUs that its enclave had when it began.

use super::commit::has;
use super::create::{check_cpus, lock, overlap, undo_abandoned};
use super::memory::ThreadWords;
use super::{Rt, RtError, enforce};
use crate::Moved;
use heddle_sys::scheduling::Mask;
use heddle_sys::topology::cpu_info;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

impl Rt {
    /// Adds `cpus` to the enclave, by the operating system's numbers; those that it has already stay. Its present
    /// agent does not use them.
    ///
    /// # Errors
    /// [`RtError::Spec`] if there is no such CPU, [`RtError::Overlap`]; nothing has changed then.
    pub fn grow(&mut self, cpus: &BTreeSet<u32>) -> Result<(), RtError> {
        check_cpus(cpus)?;
        let added: Vec<u32> = cpus.iter().copied().filter(|&cpu| !self.owns(cpu)).collect();
        let _lock = lock()?;
        undo_abandoned();
        if let Some(error) = overlap(&added) {
            return Err(error);
        }
        added.iter().for_each(|&cpu| self.memory.take_cpu(cpu));
        self.cpus.extend(added.into_iter().map(cpu_info));
        self.cpus.sort_by_key(|cpu| cpu.os_id);
        Ok(())
    }

    /// Takes all CPUs but `cpus` from the enclave. Threads that were committed to them are parked, and all that were
    /// confined to them move to CPUs that are left. No agent may use the others any more.
    pub fn shrink(&mut self, cpus: &BTreeSet<u32>) -> Moved {
        let (kept, lost): (Vec<_>, Vec<_>) =
            self.cpus.iter().copied().partition(|cpu| cpus.contains(&cpu.os_id));
        self.cpus = kept;
        let mut given_up: Mask = [0; 16];
        for cpu in lost.into_iter().map(|cpu| cpu.os_id) {
            self.memory.cpu(cpu).enclave().store(0, SeqCst);
            given_up[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        fence(SeqCst);
        let _enforcing = self.enforcing();
        let mut all = Moved::default();
        for (slot, tid) in self.managed() {
            let thread = self.memory.thread(slot);
            // The successor's first look parks a new one.
            if enforce::is_new(&thread) {
                continue;
            }
            let was_there = self.evict(slot, tid, &given_up);
            match self.is_outside(&thread) {
                true => all.outside += 1,
                false => all.moved += usize::from(was_there),
            }
        }
        all
    }

    /// Moves a thread that is committed to one of `given_up` or may run there. Returns whether it was.
    fn evict(&self, slot: usize, mut tid: u32, given_up: &Mask) -> bool {
        let thread = self.memory.thread(slot);
        let committed = thread.live().committed().filter(|&os_cpu| has(given_up, os_cpu));
        let is_apart = |(placed, lost): (&u64, &u64)| placed & lost == 0;
        if committed.is_none() && thread.placed().iter().zip(given_up).all(is_apart) {
            return false;
        }
        if let Some(os_cpu) = committed {
            // Fails if it has just gone to sleep, which ends the commitment, too.
            self.park(slot, os_cpu, !self.is_on(slot, os_cpu));
        }
        self.demote(slot, tid);
        let target = if self.is_outside(&thread) {
            thread.wanted()
        } else {
            self.own_part(&thread.wanted())
        };
        for _ in 0..enforce::TRIES {
            if enforce::place(&thread, tid, &target).is_ok() {
                break;
            }
            // If the kernel refuses for another reason, it stays until it is committed elsewhere.
            tid = self.follow(slot, tid);
        }
        true
    }

    /// Whether a thread may run on none of the enclave's CPUs.
    fn is_outside(&self, thread: &ThreadWords<'_>) -> bool {
        self.own_part(&thread.wanted()) == [0; 16]
    }

    /// Whether a CPU is the enclave's now, by the operating system's number.
    pub(super) fn owns(&self, os_cpu: u32) -> bool {
        self.memory.cpu(os_cpu).enclave().load(Relaxed) != 0
    }
}
