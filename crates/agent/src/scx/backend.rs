//! [`Backend`] for an enclave of sched_ext.

use super::commit::Operation;
use super::enclave::{RING_BYTES, deadline};
use super::memory::EnclaveField as Field;
use super::{Scx, queues};
use crate::model::OWN_CPU;
use crate::model::{
    CpuWord, EnclaveWord, FromWords as _, Group, Message, Phase, QueueId, QueueWord, Seq,
    ThreadWord, Transaction,
};
use crate::{Backend, BackendError, Takers, Traits};
use heddle_core::{Class, CpuId, CpuInfo, CpuSet, Ns, TaskId};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Returns the enclave's first word: the phase in the lower half, the agent in the upper.
fn phase_and_agent(phase: Phase, agent: u32) -> u64 {
    phase as u64 | u64::from(agent) << 32
}

impl Scx {
    fn turn(&self, from: u64, to: u64) -> bool {
        let word = self.memory.enclave(self.id, Field::StateAndAgent);
        word.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    fn own(&self, queue: QueueId) -> Result<u32, BackendError> {
        let is_there = (queue.0 as usize) < self.memory.queue_room();
        let mine = is_there && self.memory.queue_enclave(queue.0).load(Acquire) == self.id;
        if mine { Ok(queue.0) } else { Err(BackendError::NoQueue(queue)) }
    }

    fn os_cpu(&self, cpu: CpuId) -> Option<u32> {
        self.cpus.get(cpu.index()).map(|cpu| cpu.os_id)
    }

    /// Whether all messages of the thread's queue were read: then a number that was not seen was lost.
    fn has_read_all(&self, slot: usize) -> bool {
        let queue = self.memory.thread_queue(slot);
        self.ends.with(&self.memory, queue, |end| end.ring.is_empty()).unwrap_or(false)
    }
}

impl Backend for Scx {
    fn traits(&self) -> Traits {
        Traits {
            name: "scx",
            parks: true,
            atomic: true,
            groups: true,
            below_ordinary: true,
            offers: true,
            picks: self.has_pick_next(),
        }
    }

    fn cpus(&self) -> &[CpuInfo] {
        &self.cpus
    }

    fn now(&self) -> Ns {
        heddle_sys::clock::now()
    }

    fn attach(&self) -> Result<(), BackendError> {
        let active = phase_and_agent(Phase::Active, std::process::id());
        if !self.turn(phase_and_agent(Phase::Waiting, 0), active) {
            return Err(BackendError::WrongPhase(self.enclave().phase));
        }
        self.memory.enclave(self.id, Field::Generation).fetch_add(1, AcqRel);
        Ok(())
    }

    fn detach(&self) {
        let grace = Ns(self.memory.enclave(self.id, Field::Grace).load(Acquire));
        self.memory.enclave(self.id, Field::Deadline).store(deadline(grace), Release);
        let active = phase_and_agent(Phase::Active, std::process::id());
        self.turn(active, phase_and_agent(Phase::Waiting, 0));
    }

    fn next(&self, queue: QueueId) -> Option<Message> {
        loop {
            let words = self.ends.with(&self.memory, queue.0, |end| end.ring.next::<6>())??;
            // A message of an unknown kind changes nothing that this version knows.
            let Ok(message) = Message::from_words(words) else { continue };
            if message.kind.is_of_thread() && self.memory.has_slot(message.thread.index()) {
                let consumed = self.memory.consumed(message.thread.index());
                consumed.store(message.tseq.0 as u32, Release);
            }
            return Some(message);
        }
    }

    fn wait(&self, queue: QueueId, until: Option<Ns>) {
        let Some(end) = self.ends.opened(&self.memory, queue.0) else { return };
        let timeout = until.map(|until| Ns(until.0.saturating_sub(self.now().0)));
        end.wait(timeout);
    }

    fn wake(&self, queue: QueueId) {
        self.ends.with(&self.memory, queue.0, super::queues::End::wake);
    }

    fn queue(&self, queue: QueueId) -> QueueWord {
        let Ok(queue) = self.own(queue) else { return QueueWord::default() };
        QueueWord::from_words(self.memory.queue(queue)).unwrap_or_default()
    }

    fn default_queue(&self) -> QueueId {
        let both = self.memory.enclave(self.id, Field::GuardianAndQueue).load(Acquire);
        QueueId((both >> 32) as u32)
    }

    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError> {
        let no_room = |error: &io::Error| {
            error.kind() == io::ErrorKind::OutOfMemory && error.raw_os_error().is_none()
        };
        match queues::make(&self.memory, self.id, RING_BYTES, wakes) {
            Ok(queue) => Ok(QueueId(queue)),
            Err(error) if no_room(&error) => Err(BackendError::NoRoom(self.memory.queue_room())),
            Err(source) => Err(BackendError::System { what: "create a queue".into(), source }),
        }
    }

    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        let queue = self.own(queue)?;
        self.memory.queue_wakeup(queue).store(u32::from(wakes), Release);
        Ok(())
    }

    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        let number = self.own(queue)?;
        let associated = self.queue(queue).associated;
        if associated > 0 {
            return Err(BackendError::InUse(queue, associated));
        }
        self.ends.close(number);
        queues::destroy(&self.memory, number);
        Ok(())
    }

    fn associate(&self, thread: TaskId, queue: QueueId) -> Result<(), BackendError> {
        let queue = self.own(queue)?;
        let slot = self.slot(thread).ok_or(BackendError::NoThread(thread))?;
        let tseq = self.memory.thread_tseq(slot);
        if self.has_read_all(slot) {
            self.memory.consumed(slot).store(tseq as u32, Release);
        }
        let result = self.control(Operation::Associate, thread.0, queue, 0);
        match super::commit::answer("associate a thread", result) {
            Ok(_) => Ok(()),
            Err(_) if result == -i64::from(rustix::io::Errno::BUSY.raw_os_error()) => {
                Err(BackendError::Pending(thread))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn associate_cpu(&self, cpu: CpuId, queue: QueueId) -> Result<(), BackendError> {
        let queue = self.own(queue)?;
        if let Some(os_cpu) = self.os_cpu(cpu) {
            self.memory.cpu_queue(os_cpu).store(queue, Release);
        }
        Ok(())
    }

    fn threads(&self) -> Vec<TaskId> {
        self.slots().map(|slot| TaskId(slot as u32)).collect()
    }

    fn thread(&self, thread: TaskId) -> ThreadWord {
        let Some(slot) = self.slot(thread) else { return ThreadWord::default() };
        ThreadWord::from_words(self.memory.thread(slot)).unwrap_or_default()
    }

    fn affinity(&self, thread: TaskId) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        let Some(slot) = self.slot(thread) else { return set };
        for (at, cpu) in self.cpus.iter().enumerate() {
            if self.memory.may_run_on(slot, cpu.os_id) {
                set.insert(CpuId(at as u16));
            }
        }
        set
    }

    fn cpu(&self, cpu: CpuId) -> CpuWord {
        let Some(os_cpu) = self.os_cpu(cpu) else { return CpuWord::default() };
        CpuWord::from_words(self.memory.cpu(os_cpu)).unwrap_or_default()
    }

    fn enclave(&self) -> EnclaveWord {
        EnclaveWord::from_words(self.memory.enclave_words(self.id)).unwrap_or_default()
    }

    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize {
        self.commit_all(transactions, how)
    }

    fn recall(&self, cpu: CpuId) -> Option<TaskId> {
        let result = self.control(Operation::Recall, self.os_cpu(cpu)?, 0, 0);
        let slot = u32::try_from(result).ok()?.checked_sub(1)?;
        Some(TaskId(slot))
    }

    fn preempt(&self, cpu: CpuId) -> bool {
        let Some(os_cpu) = self.os_cpu(cpu) else { return false };
        self.control(Operation::Preempt, os_cpu, 0, 0) > 0
    }

    fn offer(&self, thread: TaskId, tseq: Seq, takers: Takers) -> bool {
        let (cpu, flag) = match takers {
            Takers::Node(cpu) => (cpu, 0),
            Takers::Cpu(cpu) => (cpu, OWN_CPU),
        };
        let Some(os_cpu) = self.os_cpu(cpu) else { return false };
        self.control(Operation::Offer, thread.0, os_cpu | flag, tseq.0) > 0
    }

    fn describe(&self, thread: TaskId, class: Class, hint: u64) {
        if let Some(slot) = self.slot(thread) {
            self.memory.set_hint(slot, class, hint);
        }
    }

    fn revoke(&self, thread: TaskId) -> bool {
        self.control(Operation::Revoke, thread.0, 0, 0) > 0
    }
}
