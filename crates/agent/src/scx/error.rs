//! What the sched_ext backend refuses, and why.

use crate::BackendError;
use heddle_bpf::LoadError;
use std::io;
use thiserror::Error;

/// What a machine or a process lacks for the sched_ext backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// The kernel has no sched_ext.
    #[error(
        "this kernel has no sched_ext (/sys/kernel/sched_ext): it must be Linux 6.12 or later, built with CONFIG_SCHED_CLASS_EXT"
    )]
    SchedExt,
    /// The kernel does not describe its types.
    #[error(
        "the kernel has no BTF (/sys/kernel/btf/vmlinux): it must be built with CONFIG_DEBUG_INFO_BTF"
    )]
    Btf,
    /// There is nowhere to keep what outlives an agent.
    #[error("no BPF file system: mount -t bpf bpf /sys/fs/bpf")]
    BpfFileSystem,
    /// The process lacks a capability.
    #[error(
        "this process lacks {0}; be root, or give it CAP_BPF, CAP_PERFMON, CAP_SYS_NICE and CAP_SYS_ADMIN"
    )]
    Capability(&'static str),
    /// The kernel runs one scheduler of this kind at a time, and it is not this one.
    #[error("another sched_ext scheduler is loaded: `{0}`; end it first")]
    Another(String),
}

/// Why an operation of the sched_ext backend failed.
#[derive(Debug, Error)]
pub enum ScxError {
    /// The machine or the process lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Another version of this crate has loaded the kernel's programs.
    #[error(
        "the programs in the kernel are of another version of Heddle, and serve the enclaves {0}; end those first"
    )]
    Version(String),
    /// There is an enclave of the name.
    #[error("there is an enclave `{0}` already")]
    Exists(String),
    /// There is none.
    #[error("there is no enclave `{0}`")]
    NoEnclave(String),
    /// All enclaves are taken.
    #[error("no room for another enclave; there are {0}")]
    NoRoom(usize),
    /// The name is none, or there is no such CPU.
    #[error("{0}")]
    Spec(String),
    /// Another enclave has some of the CPUs.
    #[error("CPUs {cpus:?} are in enclave `{enclave}` already")]
    Overlap {
        /// The operating system's numbers.
        cpus: Vec<u32>,
        /// Whose they are.
        enclave: String,
    },
    /// The kernel did not take the programs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Threads of an enclave are in it still.
    #[error(
        "{0} threads are still in the enclave: they make new ones all the time, or do not come to their end"
    )]
    Left(usize),
    /// The kernel said no.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// For `map_err`: `what` was tried.
pub(super) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> ScxError {
    let what = what.into();
    move |source| ScxError::System { what, source: source.into() }
}

impl From<ScxError> for BackendError {
    fn from(error: ScxError) -> Self {
        match error {
            ScxError::System { what, source } => BackendError::System { what, source },
            other => BackendError::System {
                what: "the scx backend".into(),
                source: io::Error::other(other.to_string()),
            },
        }
    }
}
