//! How agents shall be.

use crate::classes::Classes;
use crate::policy::THREADS;
use heddle_core::Ns;
use std::path::PathBuf;

/// Who decides for which CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One agent for all.
    Central {
        /// Whether it polls, on a CPU of its own. With one CPU in the enclave it sleeps all the same.
        spin: bool,
    },
    /// One for each.
    Local,
}

/// What agents ask of the system so that nobody keeps them from their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realtime {
    /// Real-time priority, locked memory, and pinned where they belong to a CPU. An agent that neither sleeps nor takes a
    /// breath for `runaway` is killed by the kernel.
    Full {
        /// See `RLIMIT_RTTIME` in `setrlimit(2)`.
        runaway: Ns,
    },
    /// Nothing: for simulated machines, which have no such CPUs, and for tests without privileges.
    Off,
}

/// How agents shall be.
pub struct Options {
    /// `name` or `name:key=value,...`, of `heddle_policies`.
    pub policy: String,
    /// Who decides.
    pub place: Place,
    /// Tells latency-critical threads from others.
    pub classes: Classes,
    /// What they ask of the system.
    pub realtime: Realtime,
    /// Seeds the policy's random numbers.
    pub seed: u64,
    /// Slots of threads.
    pub threads: usize,
    /// Where what is seen is written as JSON ([`super::Report`]), ten times a second.
    pub report: Option<PathBuf>,
    /// Called when all is ready and nothing has happened yet; the agent attaches when it returns.
    pub ready: Option<Box<dyn FnOnce() + Send>>,
    /// Called when the agent is attached.
    pub attached: Option<Box<dyn FnOnce() + Send>>,
}

impl Options {
    /// A central agent that sleeps, with all that it needs of the system.
    #[must_use]
    pub fn new(policy: impl Into<String>) -> Options {
        Options {
            policy: policy.into(),
            place: Place::Central { spin: false },
            classes: Classes::default(),
            realtime: Realtime::Full { runaway: Ns::from_secs(1) },
            seed: 1,
            threads: THREADS,
            report: None,
            ready: None,
            attached: None,
        }
    }

    /// The same for a simulated machine.
    #[must_use]
    pub fn simulated(policy: impl Into<String>) -> Options {
        Options { realtime: Realtime::Off, ..Options::new(policy) }
    }
}
