//! What an enclave is made from, for every backend.

use heddle_core::Ns;
use heddle_sys::topology::cpu_info;

/// An enclave to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclaveSpec {
    /// Its name: letters, digits, `-`, `_`; it names files under `/run/heddle/agent` and `/sys/fs/bpf/heddle/agent`.
    pub name: String,
    /// The operating system's numbers of its CPUs. No other enclave may have one of them.
    pub cpus: Vec<u32>,
    /// How long a thread that can run may wait before its agent counts as hung. `None`: for ever.
    pub patience: Option<Ns>,
    /// How long the enclave waits for another agent before its threads are given back.
    pub grace: Ns,
    /// How long it waits for its first agent, which may have to be started yet. `None`: as for another.
    pub starting: Option<Ns>,
}

impl EnclaveSpec {
    /// An enclave of `cpus` with two seconds of patience and one of grace.
    #[must_use]
    pub fn new(name: impl Into<String>, cpus: &[u32]) -> EnclaveSpec {
        let (patience, grace) = (Some(Ns::from_ms(2_000)), Ns::from_ms(1_000));
        EnclaveSpec { name: name.into(), cpus: cpus.to_vec(), patience, grace, starting: None }
    }

    /// The CPUs with their places, in the order given.
    #[must_use]
    pub fn places(&self) -> Vec<heddle_core::CpuInfo> {
        self.cpus.iter().map(|&cpu| cpu_info(cpu)).collect()
    }
}
