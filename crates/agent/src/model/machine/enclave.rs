//! A model enclave as its agents see it.

use super::super::{
    CpuWord, EnclaveWord, Group, Message, Phase, QueueId, QueueWord, Seq, ThreadWord, Transaction,
};
use super::Machine;
use crate::{Backend, BackendError, Takers, Traits};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, TaskId};
use std::sync::PoisonError;

/// The most queues of an enclave, as in `layout.h`.
const QUEUES: usize = 1024;
/// No machine has this CPU.
const NO_CPU: CpuId = CpuId(u16::MAX);

/// An enclave of a [`Machine`].
#[derive(Clone, Debug)]
pub struct ModelEnclave {
    machine: Machine,
    id: u32,
    cpus: Vec<CpuInfo>,
    /// The same CPUs, as positions among those of the machine. The enclave may have lost some since
    /// ([`Machine::resize`]).
    places: Vec<CpuId>,
}

impl ModelEnclave {
    pub(super) fn new(machine: Machine, id: u32) -> ModelEnclave {
        let (places, cpus) = {
            let kernel = machine.lock();
            let places = kernel.enclave(id).spec.cpus.clone();
            let cpus = places.iter().map(|cpu| kernel.infos[cpu.index()]).collect();
            (places, cpus)
        };
        ModelEnclave { machine, id, cpus, places }
    }

    /// Returns its number, as [`Machine`] wants it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the machine's number of one of its CPUs.
    pub(in super::super) fn place(&self, cpu: CpuId) -> CpuId {
        self.places.get(cpu.index()).copied().unwrap_or(NO_CPU)
    }

    /// Sets what chooses among the offered threads: the index of one, or something else for the first.
    pub fn set_pick_next(&self, pick_next: fn(&[TaskId]) -> usize) {
        self.machine.with(|kernel| kernel.enclave_mut(self.id).pick_next = Some(pick_next));
    }

    fn has_pick_next(&self) -> bool {
        self.machine.lock().enclave(self.id).pick_next.is_some()
    }

    /// Whether any of its queues has a message.
    pub(in super::super) fn has_messages(&self) -> bool {
        let kernel = self.machine.lock();
        kernel.queues.iter().any(|queue| queue.enclave == self.id && !queue.ring.is_empty())
    }

    /// Returns its machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }
}

impl Backend for ModelEnclave {
    fn traits(&self) -> Traits {
        Traits {
            name: "model",
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
        self.machine.time()
    }

    fn attach(&self) -> Result<(), BackendError> {
        self.machine.with(|kernel| kernel.attach(self.id))
    }

    fn detach(&self) {
        self.machine.with(|kernel| kernel.detach(self.id));
    }

    fn next(&self, queue: QueueId) -> Option<Message> {
        self.machine.lock().queue_of(self.id, queue).ok()?.ring.pop_front()
    }

    fn wait(&self, queue: QueueId, until: Option<Ns>) {
        let mut kernel = self.machine.lock();
        loop {
            let now = kernel.now;
            let Ok(queue) = kernel.queue_of(self.id, queue) else { return };
            let due = until.is_some_and(|until| until <= now);
            if std::mem::take(&mut queue.woken) || !queue.ring.is_empty() || due {
                return;
            }
            let woken = self.machine.0.bell.wait(kernel);
            kernel = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self, queue: QueueId) {
        self.machine.with(|kernel| {
            if let Ok(queue) = kernel.queue_of(self.id, queue) {
                queue.woken = true;
                kernel.bell = true;
            }
        });
    }

    fn queue(&self, queue: QueueId) -> QueueWord {
        let mut kernel = self.machine.lock();
        kernel.queue_of(self.id, queue).map_or(QueueWord::default(), |queue| queue.word)
    }

    fn default_queue(&self) -> QueueId {
        self.machine.lock().enclave(self.id).queue
    }

    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError> {
        self.machine.with(|kernel| {
            let phase = kernel.enclave(self.id).word.phase;
            if phase == Phase::Free {
                return Err(BackendError::WrongPhase(phase));
            }
            let taken = kernel.queues.iter().filter(|queue| queue.enclave == self.id).count();
            if taken >= QUEUES {
                return Err(BackendError::NoRoom(QUEUES));
            }
            let room = kernel.enclave(self.id).spec.ring;
            Ok(kernel.add_queue(self.id, room, wakes))
        })
    }

    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        self.machine.with(|kernel| {
            kernel.queue_of(self.id, queue)?.wakes = wakes;
            Ok(())
        })
    }

    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        self.machine.with(|kernel| kernel.destroy(self.id, queue))
    }

    fn associate(&self, thread: TaskId, queue: QueueId) -> Result<(), BackendError> {
        self.machine.with(|kernel| kernel.associate(self.id, thread, queue))
    }

    fn associate_cpu(&self, cpu: CpuId, queue: QueueId) -> Result<(), BackendError> {
        self.machine.with(|kernel| {
            kernel.queue_of(self.id, queue)?;
            if let Some(cpu) = kernel.own_cpu(self.id, self.place(cpu)) {
                kernel.cpus[cpu].queue = queue;
            }
            Ok(())
        })
    }

    fn threads(&self) -> Vec<TaskId> {
        self.machine.lock().threads_of(self.id)
    }

    fn thread(&self, thread: TaskId) -> ThreadWord {
        let word = self.machine.lock().word(thread);
        if word.enclave == self.id { word } else { ThreadWord::default() }
    }

    fn affinity(&self, thread: TaskId) -> CpuSet {
        let kernel = self.machine.lock();
        let mut set = CpuSet::EMPTY;
        if let Some(thread) = kernel.threads.get(thread.index()) {
            let own = |&cpu: &CpuId| kernel.own_cpu(self.id, cpu).is_some();
            let cpus = self.places.iter().enumerate();
            let allowed = cpus.filter(|(_, cpu)| thread.affinity.contains(**cpu) && own(cpu));
            allowed.for_each(|(at, _)| set.insert(CpuId(at as u16)));
        }
        set
    }

    fn cpu(&self, cpu: CpuId) -> CpuWord {
        let kernel = self.machine.lock();
        let cpu = kernel.own_cpu(self.id, self.place(cpu));
        cpu.map_or(CpuWord::default(), |cpu| kernel.cpus[cpu].word)
    }

    fn enclave(&self) -> EnclaveWord {
        self.machine.lock().enclave(self.id).word
    }

    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize {
        let positions: Vec<CpuId> = transactions.iter().map(|one| one.cpu).collect();
        transactions.iter_mut().for_each(|one| one.cpu = self.place(one.cpu));
        let committed = self.machine.with(|kernel| kernel.commit(self.id, transactions, how));
        transactions.iter_mut().zip(positions).for_each(|(one, cpu)| one.cpu = cpu);
        committed
    }

    fn recall(&self, cpu: CpuId) -> Option<TaskId> {
        self.machine.with(|kernel| kernel.recall(self.id, self.place(cpu)))
    }

    fn preempt(&self, cpu: CpuId) -> bool {
        self.machine.with(|kernel| kernel.preempt(self.id, self.place(cpu)))
    }

    fn offer(&self, thread: TaskId, tseq: Seq, takers: Takers) -> bool {
        let takers = match takers {
            Takers::Node(cpu) => Takers::Node(self.place(cpu)),
            Takers::Cpu(cpu) => Takers::Cpu(self.place(cpu)),
        };
        self.machine.with(|kernel| kernel.offer(self.id, thread, tseq, takers))
    }

    fn revoke(&self, thread: TaskId) -> bool {
        self.machine.with(|kernel| kernel.revoke(self.id, thread))
    }
}
