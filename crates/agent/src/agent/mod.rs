//! The threads that run a policy agent on a backend: [`serve`].
//!
//! - [`Place::Central`]: one agent decides for all CPUs. It sleeps until there is news or a quantum ends; or it spins, on a CPU
//!   of its own, which it gives up for another when somebody else needs it (hot handoff; ghOSt, section 3.3).
//! - [`Place::Local`]: an agent for each CPU, asleep on a queue of its own, that decides for that CPU only and gives it up to
//!   the thread that it commits (ghOSt, section 3.2).
//!
//! # Invariants
//! - **A1** Only who holds the scheduler's lock reads messages and commits.
//! - **A2** Agents never wait for a thread that is not real-time: what `status` shows is left for the thread that writes it, and
//!   where that one holds it, left out.
//! - **A3** An agent that does not spin takes [`SHARE`] percent of a CPU at most, however often it is called (`share.rs`).
//! - **A4** Whatever ends [`serve`], its threads have ended, its queues are given back and the backend is detached.
//!
//! ```
//! use heddle_agent::agent::{Control, Options, Why, serve};
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
//!     assert_eq!(agent.join().unwrap()?.why, Why::Left);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod central;
mod control;
mod crew;
mod local;
mod options;
mod realtime;
mod relay;
mod report;
mod share;
#[cfg(test)]
mod tests;

pub use control::Control;
pub use options::{Options, Place, Realtime};
pub(crate) use report::save as save_report;
pub use report::{ClassReport, Delay, Report};
pub use share::SHARE;

use crate::policy::Tally;
use crate::{Backend, BackendError};
use crew::Crew;
use heddle_core::Policy;
use heddle_policies::{PolicyError, Visitor, with_policy};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Why agents could not begin.
#[derive(Debug, Error)]
pub enum AgentError {
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The enclave would not have it.
    #[error("the enclave: {0}")]
    Backend(#[from] BackendError),
    /// The enclave has no CPU.
    #[error("the enclave has no CPU")]
    NoCpu,
    /// A thread could not be made.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A thread could not be confined to its CPU.
    #[error("cannot pin an agent to CPU {cpu}: {source}")]
    Pin {
        /// The system's number of the CPU.
        cpu: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// Real-time priority, which an agent needs so that no thread that it schedules can keep it from doing so.
    #[error(
        "an agent needs real-time priority {priority}: CAP_SYS_NICE, or RLIMIT_RTPRIO of as much: {source}"
    )]
    Realtime {
        /// Which it asked for.
        priority: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// Memory that is paged out would make the agent wait for a thread that it schedules.
    #[error("an agent needs its memory locked: CAP_IPC_LOCK, or RLIMIT_MEMLOCK unlimited: {0}")]
    Memory(#[source] io::Error),
}

/// Why agents ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// [`Control::leave`]: a successor comes.
    Left,
    /// [`Control::stop`].
    Stopped,
    /// The enclave does not take this agent's commits any more: its patience was at an end, or it is gone.
    Lost,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Why it ended.
    pub why: Why,
    /// What was done.
    pub tally: Tally,
}

/// Schedules the threads of `backend`'s enclave until `control` or the enclave says that it is enough.
///
/// The calling thread waits meanwhile; it becomes neither real-time nor pinned.
///
/// # Errors
/// [`AgentError`]; nothing has changed then.
pub fn serve(
    backend: Arc<dyn Backend>,
    options: Options,
    control: &Control,
) -> Result<Ended, AgentError> {
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
    type Out = Result<Ended, AgentError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        let Serve { backend, options, control } = self;
        Crew::new(&backend, policy, options, control).run()
    }
}
