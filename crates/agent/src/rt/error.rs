//! Errors of the real-time backend.

use crate::BackendError;
use heddle_bpf::LoadError;
use std::io;
use thiserror::Error;

/// What the machine or the process lacks for the real-time backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// The kernel has no type information.
    #[error(
        "the kernel has no BTF (/sys/kernel/btf/vmlinux): it must be built with CONFIG_DEBUG_INFO_BTF"
    )]
    Btf,
    /// There is no place to pin what outlives an agent.
    #[error("no BPF file system: mount -t bpf bpf /sys/fs/bpf")]
    BpfFileSystem,
    /// The process may not load programs.
    #[error("no permission to load BPF programs ({0}): root, or CAP_BPF and CAP_PERFMON")]
    Bpf(String),
    /// The process may not make threads real-time.
    #[error("no permission to make threads real-time ({0}): CAP_SYS_NICE")]
    RealTime(String),
    /// The process is in a container whose thread numbers differ from the kernel's.
    #[error(
        "this process is in a PID namespace of its own, but the kernel's programs see the host's thread numbers"
    )]
    PidNamespace,
    /// The kernel lacks tracepoints or fields that the programs need.
    #[error("the kernel rejects the programs: {0} (Linux 5.18 or later is needed)")]
    Kernel(String),
}

/// Why an operation on an enclave of the real-time backend failed.
#[derive(Debug, Error)]
pub enum RtError {
    /// The machine or the process lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// An enclave of this name exists.
    #[error("there is an enclave `{0}` already")]
    Exists(String),
    /// No enclave of this name exists.
    #[error("there is no enclave `{0}`")]
    NoEnclave(String),
    /// The name is not valid, or a CPU does not exist.
    #[error("{0}")]
    Spec(String),
    /// Another enclave has one of the CPUs.
    #[error("CPU {cpu} is in enclave `{enclave}` already")]
    Overlap {
        /// The CPU, by the operating system's number.
        cpu: u32,
        /// The enclave that has it.
        enclave: String,
    },
    /// There is no such thread.
    #[error("there is no thread {0}")]
    NoThread(u32),
    /// The thread cannot be managed.
    #[error("thread {tid} {why}")]
    Unfit {
        /// The thread.
        tid: u32,
        /// The reason.
        why: String,
    },
    /// The kernel rejected the programs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl RtError {
    /// Returns a function for `map_err`; `what` is the operation.
    pub(super) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::System { what, source: source.into() }
    }
}

impl From<RtError> for BackendError {
    fn from(error: RtError) -> Self {
        match error {
            RtError::System { what, source } => BackendError::System { what, source },
            other => BackendError::System {
                what: "the rt backend".into(),
                source: io::Error::other(other.to_string()),
            },
        }
    }
}
