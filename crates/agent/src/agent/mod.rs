//! The threads that run a policy agent on a backend: [`serve`].
//!
//! - [`AgentMode::Central`]: one agent decides for all CPUs. It sleeps until a message comes or a quantum ends. Or
//!   it spins, on a CPU of its own, which it exchanges for another when another thread needs it (hot handoff;
//!   ghOSt, section 3.3).
//! - [`AgentMode::Local`]: one agent for each CPU, asleep on a queue of its own. It decides only for that CPU and
//!   gives it up to the thread that it commits (ghOSt, section 3.2).
//!
//! # Invariants
//! - **A1** Only the holder of the scheduler's lock reads messages and commits.
//! - **A2** Agents never wait for a thread that is not real-time: the report's data is left for the thread that
//!   writes it, and skipped while that thread holds it.
//! - **A3** A sleeping agent takes at most [`SHARE`] percent of a CPU, however often it is called (`share.rs`).
//! - **A4** However [`serve`] ends, its threads have ended, its queues are given back and the backend is detached.
//!
//! ```
//! use heddle_agent::agent::{Control, Options, EndReason, serve};
//! use heddle_agent::model::machine::{Machine, Spec};
//! use heddle_core::CpuId;
//! use std::sync::Arc;
//!
//! let machine = Machine::flat(2);
//! let enclave = Arc::new(machine.enclave(Spec::of([CpuId(0), CpuId(1)]))?);
//! let thread = machine.spawn(enclave.id(), true);
//! let control = Control::default();
//! std::thread::scope(|scope| {
//!     let agent = scope.spawn(|| serve(enclave, Options::simulated("fifo"), &control));
//!     while machine.running(CpuId(0)) != Some(thread) && machine.running(CpuId(1)) != Some(thread) {
//!         std::thread::yield_now();
//!     }
//!     control.leave();
//!     assert_eq!(agent.join().unwrap()?.reason, EndReason::Left);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod central;
mod control;
mod local;
mod options;
mod page;
mod realtime;
mod relay;
mod report;
mod share;
#[cfg(test)]
mod tests;
mod threads;

pub use control::Control;
pub use options::{AgentMode, Options, Realtime};
pub(crate) use page::ReportPage;
pub use page::{class_name, histogram};
pub(crate) use report::save as save_report;
pub use report::{ClassReport, Delay, PickNextReport, Report};
pub use share::SHARE;

use crate::policy::Tally;
use crate::{Backend, BackendError};
use heddle_core::Policy;
use heddle_policies::{PolicyError, Visitor, with_policy};
use std::io;
use std::sync::Arc;
use thiserror::Error;
use threads::AgentThreads;

/// EndReason agents could not start.
#[derive(Debug, Error)]
pub enum AgentError {
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The enclave refused.
    #[error("the enclave: {0}")]
    Backend(#[from] BackendError),
    /// The enclave has no CPU.
    #[error("the enclave has no CPU")]
    NoCpu,
    /// A thread could not be made.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A thread could not be pinned to its CPU.
    #[error("cannot pin an agent to CPU {cpu}: {source}")]
    Pin {
        /// The system's number of the CPU.
        cpu: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// Real-time priority was refused. An agent needs it so that no thread that it schedules can preempt it.
    #[error(
        "an agent needs real-time priority {priority}: CAP_SYS_NICE, or RLIMIT_RTPRIO of as much: {source}"
    )]
    Realtime {
        /// The priority.
        priority: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// Locked memory was refused. An agent whose memory is paged out would wait for a thread that it schedules.
    #[error("an agent needs its memory locked: CAP_IPC_LOCK, or RLIMIT_MEMLOCK unlimited: {0}")]
    Memory(#[source] io::Error),
}

/// EndReason agents ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// [`Control::leave`]: a successor takes over.
    Left,
    /// [`Control::stop`].
    Stopped,
    /// The enclave no longer accepts this agent's commits: its patience has ended, or it is gone.
    Lost,
}

/// The summary of a finished agent.
#[derive(Clone, Debug)]
pub struct Summary {
    /// EndReason it ended.
    pub reason: EndReason,
    /// What it did.
    pub tally: Tally,
}

/// Schedules the threads of `backend`'s enclave until `control` or the enclave ends it.
///
/// The calling thread waits meanwhile; it becomes neither real-time nor pinned.
///
/// # Errors
/// [`AgentError`]; nothing has changed then.
pub fn serve(
    backend: Arc<dyn Backend>,
    options: Options,
    control: &Control,
) -> Result<Summary, AgentError> {
    if backend.cpus().is_empty() {
        return Err(AgentError::NoCpu);
    }
    let policy = options.policy.clone();
    with_policy(&policy, Serve { backend, options, control })?
}

struct Serve<'a> {
    backend: Arc<dyn Backend>,
    options: Options,
    control: &'a Control,
}

impl Visitor for Serve<'_> {
    type Out = Result<Summary, AgentError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        let Serve { backend, options, control } = self;
        AgentThreads::new(&backend, policy, options, control).run()
    }
}
