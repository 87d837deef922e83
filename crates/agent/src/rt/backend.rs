//! The enclave as its agents see it.

use super::Rt;
use super::commit::has;
use super::memory::EnclaveField;
use super::state_word::{BLOCKED, GONE};
use crate::model::{
    CpuOccupant, CpuWord, EnclaveWord, Group, Message, Phase, QueueId, QueueWord, Seq, State,
    ThreadWord, Transaction,
};
use crate::{Backend, BackendError, Takers, Traits};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, TaskId};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

impl Backend for Rt {
    fn traits(&self) -> Traits {
        Traits {
            name: "rt",
            parks: false,
            atomic: false,
            groups: false,
            below_ordinary: false,
            offers: false,
            picks: false,
        }
    }

    fn cpus(&self) -> &[CpuInfo] {
        &self.cpus
    }

    fn now(&self) -> Ns {
        heddle_sys::clock::now()
    }

    fn attach(&self) -> Result<(), BackendError> {
        let (waiting, active) = (Phase::Waiting as u32, Phase::Active as u32);
        let phase = self.memory.phase();
        if let Err(now) = phase.compare_exchange(waiting, active, AcqRel, Relaxed) {
            return Err(BackendError::WrongPhase(phase_of(now)));
        }
        self.memory.agent().store(std::process::id(), Release);
        self.memory.enclave(EnclaveField::Generation).fetch_add(1, Relaxed);
        self.reset_queues();
        Ok(())
    }

    fn detach(&self) {
        if !self.is_agent() {
            return;
        }
        let grace = self.memory.enclave(EnclaveField::Grace).load(Relaxed);
        let deadline = self.now().0.saturating_add(grace);
        self.memory.enclave(EnclaveField::Deadline).store(deadline, Relaxed);
        self.memory.agent().store(0, Release);
        // If the enclave has become an orphan meanwhile, it stays one.
        let (active, waiting) = (Phase::Active as u32, Phase::Waiting as u32);
        let _ = self.memory.phase().compare_exchange(active, waiting, AcqRel, Relaxed);
    }

    fn next(&self, queue: QueueId) -> Option<Message> {
        let message = self.channel(queue)?.next()?;
        self.apply(&message);
        Some(message)
    }

    fn wait(&self, queue: QueueId, until: Option<Ns>) {
        let Some(channel) = self.channel(queue) else { return };
        let left = until.map(|until| Ns(until.0.saturating_sub(self.now().0)));
        if channel.is_empty() && left != Some(Ns::ZERO) {
            channel.wait(left);
        }
    }

    fn wake(&self, queue: QueueId) {
        if let Some(channel) = self.channel(queue) {
            channel.wake();
        }
    }

    fn queue(&self, queue: QueueId) -> QueueWord {
        let Some(words) = self.memory.queue(queue.0) else { return QueueWord::default() };
        let lost = words.lost().load(Relaxed);
        QueueWord { aseq: Seq(words.aseq()), lost, associated: words.associated().load(Relaxed) }
    }

    fn default_queue(&self) -> QueueId {
        QueueId(self.memory.default_queue())
    }

    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError> {
        self.make_queue(wakes)
    }

    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        self.set_wakes(queue, wakes)
    }

    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        self.drop_queue(queue)
    }

    fn associate(&self, thread: TaskId, queue: QueueId) -> Result<(), BackendError> {
        let slot = thread.0 as usize;
        if self.channel(queue).is_none() {
            return Err(BackendError::NoQueue(queue));
        }
        if self.thread(thread).state == State::Free {
            return Err(BackendError::NoThread(thread));
        }
        let words = self.memory.thread(slot);
        let is_read = || words.consumed().load(Acquire) == words.live().seq().0 as u32;
        if !is_read() {
            return Err(BackendError::Pending(thread));
        }
        let before = words.queue().swap(queue.0, AcqRel);
        // A message sent in between may have gone to either queue.
        if !is_read() {
            words.queue().store(before, Release);
            return Err(BackendError::Pending(thread));
        }
        if let Some(before) = self.memory.queue(before) {
            before.dissociate();
        }
        if let Some(now) = self.memory.queue(queue.0) {
            now.associated().fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn associate_cpu(&self, cpu: CpuId, queue: QueueId) -> Result<(), BackendError> {
        if self.channel(queue).is_none() {
            return Err(BackendError::NoQueue(queue));
        }
        if let Some(os_cpu) = self.os_cpu(cpu) {
            self.memory.cpu(os_cpu).queue().store(queue.0, Release);
        }
        Ok(())
    }

    fn threads(&self) -> Vec<TaskId> {
        self.scan_threads().into_iter().map(|slot| TaskId(slot as u32)).collect()
    }

    fn thread(&self, thread: TaskId) -> ThreadWord {
        let slot = thread.0 as usize;
        if slot >= self.memory.slots() {
            return ThreadWord::default();
        }
        let words = self.memory.thread(slot);
        let (live, tid) = (words.live(), words.tid().load(Acquire));
        if tid == 0 || live.state() == GONE {
            return ThreadWord::default();
        }
        let (committed, running_on) = (live.committed(), words.running_on());
        let state = match committed {
            _ if live.state() == BLOCKED => State::Blocked,
            None => State::Parked,
            Some(cpu) if running_on == Some(cpu) => State::OnCpu,
            Some(_) => State::Latched,
        };
        let since = words.since().max(words.committed_at().load(Relaxed));
        ThreadWord {
            tid,
            tgid: words.tgid(),
            state,
            os_cpu: committed.unwrap_or_else(|| words.last_cpu()),
            tseq: live.seq(),
            on_at: Ns(since),
            runtime: Ns(words.runtime()),
            runnable_at: Ns(words.runnable_at()),
            enclave: 1,
            queue: QueueId(words.queue().load(Relaxed)),
            weight: words.weight(),
        }
    }

    fn affinity(&self, thread: TaskId) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        let slot = thread.0 as usize;
        if slot >= self.memory.slots() {
            return set;
        }
        let wanted = self.memory.thread(slot).wanted();
        for (at, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| has(&wanted, cpu.os_id)) {
            debug_assert!(cpu.os_id < 1024);
            set.insert(CpuId(at as u16));
        }
        set
    }

    fn cpu(&self, cpu: CpuId) -> CpuWord {
        let Some(os_cpu) = self.os_cpu(cpu) else { return CpuWord::default() };
        let words = self.memory.cpu(os_cpu);
        let committed = self.committed_to(os_cpu);
        let task = |slot: &usize| TaskId(*slot as u32);
        let current = committed.iter().find(|slot| self.is_on(**slot, os_cpu)).map(task);
        let latched = committed.iter().map(task).find(|slot| Some(*slot) != current);
        let seen = CpuOccupant::ALL.get(words.occupant() as usize).copied().unwrap_or_default();
        let occupant = match current {
            Some(_) => CpuOccupant::Managed,
            // A parked thread runs only if nothing else does: to a policy that is an idle CPU.
            None if seen == CpuOccupant::Managed => CpuOccupant::Idle,
            None => seen,
        };
        let online = words.online().load(Relaxed) != 0;
        CpuWord { occupant, current, latched, since: Ns(words.since()), online, handoff: 0 }
    }

    fn enclave(&self) -> EnclaveWord {
        let of = |field| self.memory.enclave(field).load(Relaxed);
        let agent = self.memory.agent().load(Relaxed);
        EnclaveWord {
            phase: phase_of(self.memory.phase().load(Acquire)),
            agent: (agent != 0).then_some(agent),
            generation: of(EnclaveField::Generation),
            committed: of(EnclaveField::Committed),
            failed: of(EnclaveField::Failed),
            threads: of(EnclaveField::Threads),
            ..EnclaveWord::default()
        }
    }

    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize {
        self.carry_out(transactions, how)
    }

    /// Never recalls: a commit is carried out at once. `preempt` parks the thread that has the CPU.
    fn recall(&self, _: CpuId) -> Option<TaskId> {
        None
    }

    fn preempt(&self, cpu: CpuId) -> bool {
        self.os_cpu(cpu).is_some_and(|os_cpu| self.take(os_cpu))
    }

    /// Cannot: a parked thread runs on an idle CPU by itself.
    fn offer(&self, _thread: TaskId, _tseq: Seq, _takers: Takers) -> bool {
        false
    }

    fn revoke(&self, _thread: TaskId) -> bool {
        false
    }
}

fn phase_of(number: u32) -> Phase {
    Phase::ALL.get(number as usize).copied().unwrap_or_default()
}
