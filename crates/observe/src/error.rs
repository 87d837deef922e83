//! Why a service cannot be watched.

use std::fmt;
use std::io;

use heddle_bpf::LoadError;

/// Why watching failed, on which object, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The processes serve no port.
    #[error("{0} has no listening TCP socket and no UDP socket with a port")]
    NoSockets(String),
    /// No process serves the port.
    #[error(
        "no socket listens on port {0}; processes of other users can be looked into by root only"
    )]
    NotServed(u16),
    /// Neither processes nor ports were given.
    #[error("nothing to watch: name processes, ports or both")]
    NoTarget,
    /// Privileges are missing.
    #[error("watching needs root, or CAP_BPF and CAP_PERFMON; this process lacks {0}")]
    Denied(String),
    /// The kernel lacks something.
    #[error("this kernel has no {feature} ({since})")]
    Kernel {
        /// What.
        feature: &'static str,
        /// Which kernels have it.
        since: &'static str,
    },
    /// The kernel refused a program.
    #[error("cannot load the programs that observe: {0}")]
    Load(#[from] LoadError),
    /// A system call failed.
    #[error("{about}: {error}")]
    System {
        /// What was attempted.
        about: String,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
}

impl ObserveError {
    /// Returns a function that adds what was attempted to a system call's error.
    pub(crate) fn system(about: impl fmt::Display) -> impl FnOnce(io::Error) -> ObserveError {
        move |error| ObserveError::System { about: about.to_string(), error }
    }
}

impl From<io::Error> for ObserveError {
    fn from(error: io::Error) -> ObserveError {
        ObserveError::system("the memory shared with the kernel's programs")(error)
    }
}
