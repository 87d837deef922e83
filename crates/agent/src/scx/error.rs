//! Errors of the sched_ext backend.

use crate::BackendError;
use heddle_bpf::LoadError;
use std::io;
use thiserror::Error;

/// What the machine or the process lacks for the sched_ext backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// The kernel has no sched_ext.
    #[error(
        "this kernel has no sched_ext (/sys/kernel/sched_ext): \
         it must be Linux 6.12 or later, built with CONFIG_SCHED_CLASS_EXT"
    )]
    SchedExt,
    /// The kernel has no type information.
    #[error(
        "the kernel has no BTF (/sys/kernel/btf/vmlinux): it must be built with CONFIG_DEBUG_INFO_BTF"
    )]
    Btf,
    /// There is no place to pin what outlives an agent.
    #[error("no BPF file system: mount -t bpf bpf /sys/fs/bpf")]
    BpfFileSystem,
    /// The process lacks a capability.
    #[error(
        "this process lacks {0}; be root, or give it CAP_BPF, CAP_PERFMON, CAP_SYS_NICE and CAP_SYS_ADMIN"
    )]
    Capability(&'static str),
    /// Another sched_ext scheduler is loaded; the kernel runs one at a time.
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
        "another version of Heddle has loaded the kernel's programs, for the enclaves {0}; end those first"
    )]
    Version(String),
    /// An enclave of this name exists.
    #[error("there is an enclave `{0}` already")]
    Exists(String),
    /// No enclave of this name exists.
    #[error("there is no enclave `{0}`")]
    NoEnclave(String),
    /// All enclaves are in use.
    #[error("no room for another enclave; there are {0}")]
    NoRoom(usize),
    /// The kernel's table of threads is full.
    #[error(
        "thread {0} cannot be managed: {most} threads are already, in all enclaves together",
        most = crate::policy::THREADS
    )]
    NoSlot(u32),
    /// The name is not valid, or a CPU does not exist.
    #[error("{0}")]
    Spec(String),
    /// Another enclave has some of the CPUs.
    #[error("CPUs {cpus:?} are in enclave `{enclave}` already")]
    Overlap {
        /// The CPUs, by the operating system's numbers.
        cpus: Vec<u32>,
        /// The enclave that has them.
        enclave: String,
    },
    /// The kernel rejected the programs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel rejected the enclave's `pick_next`.
    #[error("the pick_next: {0}")]
    PickNext(LoadError),
    /// Threads are still in the enclave.
    #[error(
        "{0} threads are still in the enclave: they make new ones all the time, or do not finish ending"
    )]
    Left(usize),
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Returns a function for `map_err`; `what` is the operation.
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
