//! Options of agents.

use crate::classes::Classes;
use crate::policy::THREADS;
use heddle_core::Ns;
use std::path::PathBuf;

/// Which agent decides for which CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMode {
    /// One agent for all.
    Central {
        /// Whether it polls, on a CPU of its own. With one CPU in the enclave it sleeps all the same.
        spin: bool,
    },
    /// One agent for each.
    Local,
}

/// What agents ask of the system so that no thread keeps them from their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realtime {
    /// Real-time priority, locked memory, and pinning if they belong to a CPU. The kernel kills an agent that
    /// neither sleeps nor pauses for `runaway`.
    Full {
        /// See `RLIMIT_RTTIME` in `setrlimit(2)`.
        runaway: Ns,
    },
    /// Nothing: for simulated machines and for tests without privileges.
    Off,
}

/// Options of agents.
pub struct Options {
    /// `name` or `name:key=value,...`, of `heddle_policies`.
    pub policy: String,
    /// Who decides.
    pub mode: AgentMode,
    /// Assigns classes to threads.
    pub classes: Classes,
    /// What the agents ask of the system.
    pub realtime: Realtime,
    /// The seed of the policy's random numbers.
    pub seed: u64,
    /// The number of thread slots.
    pub threads: usize,
    /// Where to write the report as JSON ([`super::Report`]), ten times a second.
    pub report: Option<PathBuf>,
    /// The enclave's name. With it and a report, other processes of the user find what the report says in the page of
    /// this process ([`heddle_telemetry`]), unless `HEDDLE_TELEMETRY` is `off`.
    pub enclave: Option<String>,
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
            mode: AgentMode::Central { spin: false },
            classes: Classes::default(),
            realtime: Realtime::Full { runaway: Ns::from_secs(1) },
            seed: 1,
            threads: THREADS,
            report: None,
            enclave: None,
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
