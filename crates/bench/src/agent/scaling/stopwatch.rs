//! A backend that measures how long its agent spent in it.

use heddle_agent::model::machine::ModelEnclave;
use heddle_agent::model::{
    CpuWord, EnclaveWord, Group, Message, QueueId, QueueWord, Seq, ThreadWord, Transaction,
};
use heddle_agent::{Backend, BackendError, Takers, Traits};
use heddle_core::{Class, CpuId, CpuInfo, CpuSet, Ns, TaskId};
use heddle_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The model's enclave, and the time spent in it, which is not part of the measurement.
pub(super) struct Stopwatch {
    inner: ModelEnclave,
    spent: AtomicU64,
    calls: AtomicU64,
    groups: AtomicU64,
}

impl Stopwatch {
    pub(super) fn new(inner: ModelEnclave) -> Stopwatch {
        Stopwatch {
            inner,
            spent: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            groups: AtomicU64::new(0),
        }
    }

    /// Ticks spent, calls and commits since the last query.
    pub(super) fn take(&self) -> (u64, u64, u64) {
        (self.spent.swap(0, Relaxed), self.calls.swap(0, Relaxed), self.groups.swap(0, Relaxed))
    }

    fn timed<R>(&self, call: impl FnOnce(&ModelEnclave) -> R) -> R {
        let begin = clock::ticks();
        let result = call(&self.inner);
        self.spent.fetch_add(clock::ticks().wrapping_sub(begin), Relaxed);
        self.calls.fetch_add(1, Relaxed);
        result
    }
}

impl Backend for Stopwatch {
    fn traits(&self) -> Traits {
        self.inner.traits()
    }
    fn cpus(&self) -> &[CpuInfo] {
        self.inner.cpus()
    }
    fn now(&self) -> Ns {
        self.timed(Backend::now)
    }
    fn attach(&self) -> Result<(), BackendError> {
        self.inner.attach()
    }
    fn detach(&self) {
        self.inner.detach();
    }
    fn next(&self, queue: QueueId) -> Option<Message> {
        self.timed(|inner| inner.next(queue))
    }
    fn wait(&self, queue: QueueId, until: Option<Ns>) {
        self.inner.wait(queue, until);
    }
    fn wake(&self, queue: QueueId) {
        self.inner.wake(queue);
    }
    fn queue(&self, queue: QueueId) -> QueueWord {
        self.timed(|inner| inner.queue(queue))
    }
    fn default_queue(&self) -> QueueId {
        self.inner.default_queue()
    }
    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError> {
        self.inner.create_queue(wakes)
    }
    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        self.inner.configure_queue(queue, wakes)
    }
    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        self.inner.destroy_queue(queue)
    }
    fn associate(&self, thread: TaskId, queue: QueueId) -> Result<(), BackendError> {
        self.inner.associate(thread, queue)
    }
    fn associate_cpu(&self, cpu: CpuId, queue: QueueId) -> Result<(), BackendError> {
        self.inner.associate_cpu(cpu, queue)
    }
    fn threads(&self) -> Vec<TaskId> {
        self.inner.threads()
    }
    fn thread(&self, thread: TaskId) -> ThreadWord {
        self.timed(|inner| inner.thread(thread))
    }
    fn affinity(&self, thread: TaskId) -> CpuSet {
        self.timed(|inner| inner.affinity(thread))
    }
    fn cpu(&self, cpu: CpuId) -> CpuWord {
        self.timed(|inner| inner.cpu(cpu))
    }
    fn enclave(&self) -> EnclaveWord {
        self.timed(Backend::enclave)
    }
    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize {
        self.groups.fetch_add(1, Relaxed);
        self.timed(|inner| inner.commit(transactions, how))
    }
    fn recall(&self, cpu: CpuId) -> Option<TaskId> {
        self.timed(|inner| inner.recall(cpu))
    }
    fn preempt(&self, cpu: CpuId) -> bool {
        self.timed(|inner| inner.preempt(cpu))
    }
    fn describe(&self, thread: TaskId, class: Class, hint: u64) {
        self.timed(|inner| inner.describe(thread, class, hint));
    }
    fn offer(&self, thread: TaskId, tseq: Seq, takers: Takers) -> bool {
        self.timed(|inner| inner.offer(thread, tseq, takers))
    }
    fn revoke(&self, thread: TaskId) -> bool {
        self.timed(|inner| inner.revoke(thread))
    }
}
