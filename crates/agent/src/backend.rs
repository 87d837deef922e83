//! The contract between agents and the backends that carry out their decisions.

use crate::model::{
    CpuWord, EnclaveWord, Group, Message, QueueId, QueueWord, Seq, ThreadWord, Transaction,
};
use heddle_core::{Class, CpuId, CpuInfo, CpuSet, Ns, TaskId};
use thiserror::Error;

/// What a backend can and cannot do; shown by `heddle agent status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// `scx`, `rt`, `model`.
    pub name: &'static str,
    /// Whether a parked thread really stands still. If not, it runs while its CPU has nothing else to do.
    pub parks: bool,
    /// Whether sequence numbers are checked together with the commit. If not, they are checked shortly before
    /// it.
    pub atomic: bool,
    /// Whether all-or-nothing groups are supported.
    pub groups: bool,
    /// Whether managed threads are below ordinary ones, as in ghOSt. If not, they are above them.
    pub below_ordinary: bool,
    /// Whether CPUs take threads that were offered ([`Backend::offer`]).
    pub offers: bool,
    /// Whether the enclave has a `pick_next`, which chooses among the offered threads
    /// ([`crate::EnclaveSpec::pick_next`]).
    pub picks: bool,
}

/// The CPUs that may take a thread without asking its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takers {
    /// The enclave's CPUs of the NUMA node of this one: the first that has nothing else to run.
    Node(CpuId),
    /// This one.
    Cpu(CpuId),
}

/// Why an operation on an enclave failed.
#[derive(Debug, Error)]
pub enum BackendError {
    /// Not all messages of the thread are read yet (ghOSt, section 3.1: association). Drain its queue and try
    /// again.
    #[error("thread {0} has messages that its agent has not read")]
    Pending(TaskId),
    /// A queue with associated threads cannot be destroyed.
    #[error("{0} still has {1} threads")]
    InUse(QueueId, u64),
    /// The enclave has no such queue.
    #[error("there is no {0} in this enclave")]
    NoQueue(QueueId),
    /// The enclave has no such thread.
    #[error("there is no thread {0} in this enclave")]
    NoThread(TaskId),
    /// All queues are in use.
    #[error("no room for another queue; there are {0}")]
    NoRoom(usize),
    /// The operation needs the enclave in another phase.
    #[error("the enclave is {0:?}")]
    WrongPhase(crate::model::Phase),
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// An enclave as its agents see it: the kernel's side of ghOSt (sections 3.1 to 3.3).
///
/// All methods may be called by several threads at once, but only one thread at a time may drain a queue.
/// Reading status words costs nanoseconds and no system call.
///
/// # Rules that every backend keeps
/// - A thread's state changes first, then its sequence number grows, then its message is sent.
/// - The queue's sequence number grows before the message is there, even if there is no room for it.
/// - A transaction with a sequence number succeeds only if that was the thread's at the instant of the commit
///   ([`Traits::atomic`] says how exactly).
/// - A thread is committed to at most one CPU, and a CPU has at most one thread latched: a second commit to
///   it unlatches the first thread, which is reported by [`crate::model::Kind::ThreadPreempted`] with `info`
///   1.
pub trait Backend: Send + Sync {
    /// Returns what the backend can do.
    fn traits(&self) -> Traits;
    /// Returns the enclave's CPUs; their position is their [`CpuId`].
    fn cpus(&self) -> &[CpuInfo];
    /// Returns the time, by the clock of messages and status words.
    fn now(&self) -> Ns;

    /// Attaches the calling process as the agent: from now on commits are accepted and the enclave is
    /// [`crate::model::Phase::Active`].
    ///
    /// # Errors
    /// [`BackendError::WrongPhase`] if another agent is attached or the enclave is an orphan.
    fn attach(&self) -> Result<(), BackendError>;

    /// Detaches the agent in favour of a successor: threads stay parked for the grace time.
    fn detach(&self);

    /// Takes the oldest unread message of `queue`.
    fn next(&self, queue: QueueId) -> Option<Message>;
    /// Sleeps until `queue` has a message, or `until`. Returns at once if there is one. May return
    /// spuriously.
    fn wait(&self, queue: QueueId, until: Option<Ns>);
    /// Makes a [`wait`](Backend::wait) on `queue` return, from another thread.
    fn wake(&self, queue: QueueId);
    /// Returns the status word of a queue.
    fn queue(&self, queue: QueueId) -> QueueWord;
    /// Returns the queue that new threads' messages go to.
    fn default_queue(&self) -> QueueId;
    /// Creates a queue. `wakes` says whether a message wakes the thread that waits on it; senders to a polled
    /// queue are spared that.
    ///
    /// # Errors
    /// [`BackendError::NoRoom`], [`BackendError::System`].
    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError>;
    /// Changes whether messages wake the thread that waits on `queue`.
    ///
    /// # Errors
    /// [`BackendError::NoQueue`].
    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError>;
    /// Destroys a queue.
    ///
    /// # Errors
    /// [`BackendError::InUse`] while threads are associated with it, [`BackendError::NoQueue`].
    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError>;
    /// Sends the messages of `thread` to `queue` from now on.
    ///
    /// # Errors
    /// [`BackendError::Pending`] while a message of the thread is unread.
    fn associate(&self, thread: TaskId, queue: QueueId) -> Result<(), BackendError>;
    /// Sends messages about `cpu` (ticks, availability) to `queue`.
    ///
    /// # Errors
    /// [`BackendError::NoQueue`].
    fn associate_cpu(&self, cpu: CpuId, queue: QueueId) -> Result<(), BackendError>;

    /// Returns the threads of the enclave, for an agent that starts or has lost messages. Linear in the
    /// table's length.
    fn threads(&self) -> Vec<TaskId>;
    /// Returns the status word of a thread; all zero ([`crate::model::State::Free`]) if the slot is free or
    /// of another enclave.
    fn thread(&self, thread: TaskId) -> ThreadWord;
    /// Returns the enclave's CPUs on which `thread` may run.
    fn affinity(&self, thread: TaskId) -> CpuSet;
    /// Returns the status word of a CPU.
    fn cpu(&self, cpu: CpuId) -> CpuWord;
    /// Returns the status word of the enclave.
    fn enclave(&self) -> EnclaveWord;

    /// Carries out `transactions` and stores the outcome in each. Returns the number that succeeded.
    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize;
    /// Takes back a commit whose thread has not reached `cpu` yet. The thread is parked again, which a
    /// message reports.
    fn recall(&self, cpu: CpuId) -> Option<TaskId>;
    /// Takes `cpu` from the managed thread that runs on it. The thread is parked, which a message reports.
    /// Returns false if none runs.
    fn preempt(&self, cpu: CpuId) -> bool;

    /// Lets CPUs take `thread`, which is parked, without its agent: the fast path of ghOSt (section 3.2). A CPU
    /// that has nothing else to run takes, of the threads offered to it, the one that was offered first and may
    /// run there; one of [`Takers::Cpu`] before those of [`Takers::Node`]; unless the enclave has a `pick_next`, which
    /// takes any of them or none. The agent hears of it by
    /// [`crate::model::Kind::ThreadTaken`]. Returns false if `tseq` is no longer the thread's sequence number, it
    /// is not parked, or the backend cannot do this ([`Traits::offers`]).
    fn offer(&self, thread: TaskId, tseq: Seq, takers: Takers) -> bool;
    /// Says of `thread`, before it is offered, what a `pick_next` may know: its class, and a number of the agent's. By
    /// default it is not kept.
    fn describe(&self, thread: TaskId, class: Class, hint: u64) {
        let _ = (thread, class, hint);
    }
    /// Parks a thread again that was offered, without a message. Returns false if a CPU has taken it, or it is not
    /// offered any more.
    fn revoke(&self, thread: TaskId) -> bool;
}
