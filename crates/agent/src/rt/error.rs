//! What the real-time backend refuses, and why.

use crate::BackendError;
use heddle_bpf::LoadError;
use std::io;
use thiserror::Error;

/// What a machine or a process lacks for the real-time backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// The kernel does not describe its types.
    #[error(
        "the kernel has no BTF (/sys/kernel/btf/vmlinux): it must be built with CONFIG_DEBUG_INFO_BTF"
    )]
    Btf,
    /// There is nowhere to keep what outlives an agent.
    #[error("no BPF file system: mount -t bpf bpf /sys/fs/bpf")]
    BpfFileSystem,
    /// The process may not load programs.
    #[error("no permission to load BPF programs ({0}): root, or CAP_BPF and CAP_PERFMON")]
    Bpf(String),
    /// The process may not make threads real-time.
    #[error("no permission to make threads real-time ({0}): CAP_SYS_NICE")]
    RealTime(String),
    /// The process is in a container that numbers threads differently from the kernel.
    #[error(
        "this process is in a PID namespace of its own, and the kernel's programs see other numbers of threads"
    )]
    PidNamespace,
    /// The kernel knows its programs' places, but not as they are needed.
    #[error("the kernel does not take the programs: {0} (Linux 5.18 or later is needed)")]
    Kernel(String),
}

/// Why an operation on an enclave of the real-time backend failed.
#[derive(Debug, Error)]
pub enum RtError {
    /// The machine or the process lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// There is an enclave of the name.
    #[error("there is an enclave `{0}` already")]
    Exists(String),
    /// There is none.
    #[error("there is no enclave `{0}`")]
    NoEnclave(String),
    /// The name is none, or there is no CPU.
    #[error("{0}")]
    Spec(String),
    /// Another enclave has one of the CPUs.
    #[error("CPU {cpu} is in enclave `{enclave}` already")]
    Overlap {
        /// The operating system's number.
        cpu: u32,
        /// Whose it is.
        enclave: String,
    },
    /// There is no such thread.
    #[error("there is no thread {0}")]
    NoThread(u32),
    /// The thread cannot be managed.
    #[error("thread {tid} {why}")]
    Unfit {
        /// Which.
        tid: u32,
        /// Why.
        why: String,
    },
    /// The kernel did not take the programs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel said no.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl RtError {
    /// For `map_err`: `what` was tried.
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
