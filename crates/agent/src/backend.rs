//! The contract between agents and what carries out their decisions.

use crate::model::{
    CpuWord, EnclaveWord, Group, Message, QueueId, QueueWord, ThreadWord, Transaction,
};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, TaskId};
use thiserror::Error;

/// What a backend can and cannot do; shown by `heddle agent status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// `scx`, `rt`, `model`.
    pub name: &'static str,
    /// Whether a parked thread really stands still. Where not, it runs while its CPU has nothing else to do.
    pub parks: bool,
    /// Whether sequence numbers are checked together with the commit. Where not, shortly before it.
    pub atomic: bool,
    /// Whether all-or-nothing groups are.
    pub groups: bool,
    /// Whether managed threads are below ordinary ones, as in ghOSt. Where not, they are above them.
    pub below_ordinary: bool,
}

/// Why an operation on an enclave failed.
#[derive(Debug, Error)]
pub enum BackendError {
    /// The thread's messages are not all read yet (ghOSt, section 3.1: association); drain its queue and try again.
    #[error("thread {0} has messages that its agent has not read")]
    Pending(TaskId),
    /// A queue to which threads are associated cannot be destroyed.
    #[error("{0} still has {1} threads")]
    InUse(QueueId, u64),
    /// There is no such queue in this enclave.
    #[error("there is no {0} in this enclave")]
    NoQueue(QueueId),
    /// There is no such thread in this enclave.
    #[error("there is no thread {0} in this enclave")]
    NoThread(TaskId),
    /// All queues are taken.
    #[error("no room for another queue; there are {0}")]
    NoRoom(usize),
    /// The enclave is not what the operation needs.
    #[error("the enclave is {0:?}")]
    WrongPhase(crate::model::Phase),
    /// The kernel said no.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// An enclave as its agents see it: the kernel's side of ghOSt (sections 3.1 to 3.3).
///
/// All methods may be called by several threads at once; each queue is drained by one at a time. Reading status words
/// costs nanoseconds and no system call.
///
/// # Rules that every backend keeps
/// - A thread's state changes first, then its sequence number grows, then its message is sent.
/// - The queue's sequence number grows before the message is there, also where there is no room for it.
/// - A transaction with a sequence number succeeds only if that was the thread's at the instant of the commit
///   ([`Traits::atomic`] says how exactly).
/// - A thread is committed to one CPU at most, and a CPU has at most one thread latched: a second commit to it unlatches
///   the first, which is told by [`crate::model::Kind::ThreadPreempted`] with `info` 1.
pub trait Backend: Send + Sync {
    /// What it can do.
    fn traits(&self) -> Traits;
    /// The enclave's CPUs; their position is their [`CpuId`].
    fn cpus(&self) -> &[CpuInfo];
    /// The time, of the clock that messages and status words use.
    fn now(&self) -> Ns;

    /// An agent attaches: from now on commits are accepted and the enclave is [`crate::model::Phase::Active`]. The caller's process is the agent.
    ///
    /// # Errors
    /// [`BackendError::WrongPhase`] where another agent is attached or the enclave is an orphan.
    fn attach(&self) -> Result<(), BackendError>;

    /// The agent leaves on purpose, for a successor: threads stay parked for the grace time.
    fn detach(&self);

    /// The oldest message of `queue` that was not read.
    fn next(&self, queue: QueueId) -> Option<Message>;
    /// Sleeps until `queue` has a message, or `until`. Returns at once where there is one. May return for no reason.
    fn wait(&self, queue: QueueId, until: Option<Ns>);
    /// Makes a [`wait`](Backend::wait) on `queue` return, from another thread.
    fn wake(&self, queue: QueueId);
    /// What is so of a queue.
    fn queue(&self, queue: QueueId) -> QueueWord;
    /// The queue that new threads' messages go to.
    fn default_queue(&self) -> QueueId;
    /// A new queue. `wakes` says whether a message wakes who waits on it; a queue that is polled spares its senders that.
    ///
    /// # Errors
    /// [`BackendError::NoRoom`], [`BackendError::System`].
    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError>;
    /// Changes whether messages wake who waits on `queue`.
    ///
    /// # Errors
    /// [`BackendError::NoQueue`].
    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError>;
    /// Gives a queue back.
    ///
    /// # Errors
    /// [`BackendError::InUse`] while threads are associated to it, [`BackendError::NoQueue`].
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

    /// The threads of the enclave now, for an agent that starts or has lost messages. Linear in the table's length.
    fn threads(&self) -> Vec<TaskId>;
    /// What is so of a thread; all zero ([`crate::model::State::Free`]) where the slot is nobody's or another enclave's.
    fn thread(&self, thread: TaskId) -> ThreadWord;
    /// The enclave's CPUs on which `thread` may run.
    fn affinity(&self, thread: TaskId) -> CpuSet;
    /// What is so of a CPU.
    fn cpu(&self, cpu: CpuId) -> CpuWord;
    /// What is so of the enclave.
    fn enclave(&self) -> EnclaveWord;

    /// Carries out `transactions` and puts what came of each into it. The number of those that succeeded.
    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize;
    /// Takes back a commit whose thread has not reached `cpu` yet (it is parked again, and says so by a message).
    fn recall(&self, cpu: CpuId) -> Option<TaskId>;
    /// Takes `cpu` from the managed thread that runs on it, which is parked and says so by a message. False where none runs.
    fn preempt(&self, cpu: CpuId) -> bool;
}
