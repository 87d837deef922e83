//! What every backend makes an enclave from.

use heddle_core::Ns;
use heddle_sys::topology::cpu_info;

/// The description of an enclave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclaveSpec {
    /// Its name: letters, digits, `-`, `_`. It names files under `/run/heddle/agent` and
    /// `/sys/fs/bpf/heddle/agent`.
    pub name: String,
    /// The operating system's numbers of its CPUs, none of which may belong to another enclave.
    pub cpus: Vec<u32>,
    /// How long a runnable thread may wait before its agent counts as hung. `None`: forever.
    pub patience: Option<Ns>,
    /// How long the enclave waits for another agent before its threads are given back.
    pub grace: Ns,
    /// How long it waits for its first agent, which may not be started yet. `None`: as for another.
    pub starting: Option<Ns>,
}

/// What became of threads when their enclave lost CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Threads that were on those CPUs, or confined to them, and are on others now.
    pub moved: usize,
    /// Threads that may run on none of the CPUs that the enclave has now.
    pub outside: usize,
}

impl EnclaveSpec {
    /// An enclave of `cpus` with two seconds of patience and one of grace.
    #[must_use]
    pub fn new(name: impl Into<String>, cpus: &[u32]) -> EnclaveSpec {
        let (patience, grace) = (Some(Ns::from_ms(2_000)), Ns::from_ms(1_000));
        EnclaveSpec { name: name.into(), cpus: cpus.to_vec(), patience, grace, starting: None }
    }

    /// Returns the CPUs with their topology, in the order given.
    #[must_use]
    pub fn places(&self) -> Vec<heddle_core::CpuInfo> {
        self.cpus.iter().map(|&cpu| cpu_info(cpu)).collect()
    }
}
