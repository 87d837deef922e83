//! The machine's state, and the small steps of which its events are made.

use super::super::ThreadWord;
use super::super::{CpuOccupant, CpuWord, EnclaveWord, Kind, Message, Phase, QueueId, Seq, State};
use super::queue::Queue;
use super::{Arrival, Spec};
use crate::Takers;
use crate::transition::transition;
use heddle_core::{CpuInfo, CpuSet, Ns, TaskId};
use std::collections::BTreeSet;

/// How long an orphan runs before the next one of its CPU: the kernel's own default slice.
const ORPHAN_SLICE: Ns = Ns::from_ms(20);

#[derive(Debug)]
pub(super) struct Kernel {
    pub now: Ns,
    pub arrival: Arrival,
    pub infos: Vec<CpuInfo>,
    pub cpus: Vec<Cpu>,
    pub threads: Vec<Thread>,
    /// Free slots of `threads`. The lowest is used first, so that slots are reused soon.
    pub free: BTreeSet<u32>,
    pub enclaves: Vec<Enclave>,
    pub queues: Vec<Queue>,
    /// A waiting thread has a message.
    pub bell: bool,
    /// Nothing is due before this.
    pub due: Ns,
    pub tids: u32,
    /// Threads that have got a CPU, if anyone asked for them.
    pub starts: Option<Vec<TaskId>>,
}

#[derive(Debug)]
pub(super) struct Cpu {
    pub word: CpuWord,
    pub enclave: u32,
    pub queue: QueueId,
    /// The latched thread is past recall.
    pub direct: bool,
    /// An interrupt that takes the CPU from the managed thread is on its way.
    pub kick: bool,
    /// When the slice of the running thread ends.
    pub until: Ns,
}

#[derive(Debug, Default)]
pub(super) struct Thread {
    pub word: ThreadWord,
    pub affinity: CpuSet,
    pub slice: Option<Ns>,
    /// The machine's number of the CPU where it runs, is latched or ran last; `word` has the operating system's.
    pub at: usize,
}

#[derive(Debug)]
pub(super) struct Enclave {
    pub word: EnclaveWord,
    pub spec: Spec,
    pub queue: QueueId,
    pub deadline: Ns,
    /// Threads that CPUs may take, in the order in which they were offered.
    pub offered: Vec<Offered>,
    pub pick_next: Option<PickNext>,
}

/// Returns the index of one of the threads that a CPU may take, or something else for the first.
pub type PickNext = fn(&[TaskId]) -> usize;

/// A thread that CPUs may take without the agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    pub thread: TaskId,
    /// By the machine's CPUs.
    pub takers: Takers,
}

impl Kernel {
    pub fn new(infos: Vec<CpuInfo>) -> Kernel {
        let cpu = |_: &CpuInfo| Cpu {
            word: CpuWord { online: true, ..CpuWord::default() },
            enclave: 0,
            queue: QueueId(0),
            direct: false,
            kick: false,
            until: Ns::MAX,
        };
        Kernel {
            now: Ns::ZERO,
            arrival: Arrival::AtOnce,
            cpus: infos.iter().map(cpu).collect(),
            infos,
            threads: Vec::new(),
            free: BTreeSet::new(),
            enclaves: Vec::new(),
            queues: Vec::new(),
            bell: false,
            due: Ns::MAX,
            tids: 1000,
            starts: None,
        }
    }

    /// Returns the enclave with this number, which counts from 1.
    pub fn enclave(&self, id: u32) -> &Enclave {
        &self.enclaves[id as usize - 1]
    }

    pub fn enclave_mut(&mut self, id: u32) -> &mut Enclave {
        &mut self.enclaves[id as usize - 1]
    }

    pub fn word(&self, thread: TaskId) -> ThreadWord {
        self.threads.get(thread.index()).map_or(ThreadWord::default(), |thread| thread.word)
    }

    /// Changes the state of `thread`; its message follows.
    pub fn set_state(&mut self, thread: TaskId, next: State) {
        transition(&mut self.threads[thread.index()].word.state, next);
    }

    /// Returns the CPU where `thread` runs, is latched or ran last.
    pub fn place_of(&self, thread: TaskId) -> usize {
        self.threads.get(thread.index()).map_or(0, |thread| thread.at)
    }

    /// Raises the thread's sequence number and sends its message. Its state must have changed before (the rules of
    /// `Backend`).
    pub fn notify(&mut self, thread: TaskId, kind: Kind, info: u64) {
        let word = &mut self.threads[thread.index()].word;
        word.tseq = word.tseq.next();
        let (queue, now) = (word.queue, self.now);
        let message = Message {
            kind,
            thread,
            tid: word.tid,
            os_cpu: word.os_cpu,
            tseq: word.tseq,
            aseq: Seq(0),
            at: now,
            info,
        };
        self.send(queue, message);
    }

    /// Parks a runnable thread. A latched one goes on with its wait.
    pub fn park(&mut self, thread: TaskId, kind: Kind, info: u64) {
        let now = self.now;
        let word = &mut self.threads[thread.index()].word;
        if word.state != State::Latched {
            word.runnable_at = now;
        }
        transition(&mut word.state, State::Parked);
        let enclave = word.enclave;
        self.notify(thread, kind, info);
        self.watch_patience(enclave);
    }

    /// Takes the CPU from its managed thread; the caller decides the thread's next state.
    pub fn take_off(&mut self, cpu: usize) -> Option<TaskId> {
        let thread = self.cpus[cpu].word.current.take()?;
        let now = self.now;
        let word = &mut self.threads[thread.index()].word;
        word.runtime += now - word.on_at;
        self.cpus[cpu].until = Ns::MAX;
        self.set_occupant(cpu, CpuOccupant::Idle);
        Some(thread)
    }

    pub fn set_occupant(&mut self, cpu: usize, who: CpuOccupant) {
        let now = self.now;
        let word = &mut self.cpus[cpu].word;
        (word.occupant, word.since) = (who, now);
    }

    /// Takes the latched thread from `cpu`; the caller must park it.
    pub fn unlatch(&mut self, cpu: usize) -> Option<TaskId> {
        self.cpus[cpu].direct = false;
        self.cpus[cpu].word.latched.take()
    }

    /// The interrupt: the running thread makes way if it was preempted, and the latched one takes the CPU.
    pub fn arrive(&mut self, cpu: usize) {
        if std::mem::take(&mut self.cpus[cpu].kick) {
            self.evict(cpu);
        }
        self.dispatch(cpu);
    }

    /// Preempts and parks the managed thread on `cpu`.
    pub fn evict(&mut self, cpu: usize) {
        if let Some(thread) = self.take_off(cpu) {
            self.park(thread, Kind::ThreadPreempted, 0);
        }
    }

    /// If `cpu` is free, runs the latched thread or, without an agent, the one that has waited longest.
    pub fn dispatch(&mut self, cpu: usize) {
        let word = &self.cpus[cpu].word;
        if !word.online || word.occupant != CpuOccupant::Idle {
            return;
        }
        if let Some(thread) = self.unlatch(cpu) {
            self.run(thread, cpu);
        } else if let Some(thread) = self.take_offered(cpu) {
            self.run(thread, cpu);
            self.notify(thread, Kind::ThreadTaken, 0);
        } else if let Some(thread) = self.oldest_orphan(cpu) {
            self.run(thread, cpu);
        }
    }

    fn oldest_orphan(&self, cpu: usize) -> Option<TaskId> {
        let id = self.cpus[cpu].enclave;
        if id == 0 || self.enclave(id).word.phase != Phase::Orphan {
            return None;
        }
        let waits = |(_, thread): &(usize, &Thread)| {
            let word = &thread.word;
            word.enclave == id && word.state == State::Parked && contains(&thread.affinity, cpu)
        };
        let waiting = self.threads.iter().enumerate().filter(waits);
        let (slot, _) = waiting.min_by_key(|(_, thread)| thread.word.runnable_at)?;
        Some(TaskId(slot as u32))
    }

    fn run(&mut self, thread: TaskId, cpu: usize) {
        let now = self.now;
        self.put(thread, cpu);
        let slot = &mut self.threads[thread.index()];
        transition(&mut slot.word.state, State::OnCpu);
        slot.word.on_at = now;
        let slice = slot.slice;
        self.cpus[cpu].word.current = Some(thread);
        self.set_occupant(cpu, CpuOccupant::Managed);
        if let Some(starts) = &mut self.starts {
            starts.push(thread);
        }
        self.limit(cpu, slice);
    }

    /// `thread` belongs to `cpu` from now on.
    pub fn put(&mut self, thread: TaskId, cpu: usize) {
        let slot = &mut self.threads[thread.index()];
        (slot.at, slot.word.os_cpu) = (cpu, self.infos[cpu].os_id);
    }

    /// Limits the stretch of the thread on `cpu` to `slice`, or to the orphans' slice if there is no agent.
    pub fn limit(&mut self, cpu: usize, slice: Option<Ns>) {
        let id = self.cpus[cpu].enclave;
        let orphan = id != 0 && self.enclave(id).word.phase == Phase::Orphan;
        let slice = slice.or(orphan.then_some(ORPHAN_SLICE));
        let until = slice.map_or(Ns::MAX, |slice| self.now + slice);
        self.cpus[cpu].until = until;
        self.due = self.due.min(until);
    }
}

/// Whether a set of the machine's CPUs contains `cpu`.
pub(super) fn contains(set: &CpuSet, cpu: usize) -> bool {
    set.contains(heddle_core::CpuId(cpu as u16))
}
