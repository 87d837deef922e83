//! What every backend makes an enclave from.

use heddle_bpf::Fentry;
use heddle_core::Ns;
use heddle_sys::topology::cpu_info;
use std::sync::Arc;

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
    /// What decides which of the offered threads a CPU takes, over [`crate::scx`]. `None`: the order of the offers.
    pub pick_next: Option<PickNext>,
}

/// What became of threads when their enclave lost CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Threads that were on those CPUs, or confined to them, and are on others now.
    pub moved: usize,
    /// Threads that may run on none of the CPUs that the enclave has now.
    pub outside: usize,
}

/// A user's `pick_next`, compiled and checked (`heddle_steer::pick_next`).
#[derive(Clone, Debug)]
pub struct PickNext(Arc<Fentry>);

impl PickNext {
    /// Takes code that shares a map of `struct hd_pick` with the kernel's programs (`include/heddle/offers.h`).
    #[must_use]
    pub fn new(code: Fentry) -> PickNext {
        PickNext(Arc::new(code))
    }

    pub(crate) fn code(&self) -> &Fentry {
        &self.0
    }
}

impl PartialEq for PickNext {
    fn eq(&self, other: &PickNext) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PickNext {}

impl EnclaveSpec {
    /// An enclave of `cpus` with two seconds of patience and one of grace.
    #[must_use]
    pub fn new(name: impl Into<String>, cpus: &[u32]) -> EnclaveSpec {
        let (patience, grace) = (Some(Ns::from_ms(2_000)), Ns::from_ms(1_000));
        EnclaveSpec {
            name: name.into(),
            cpus: cpus.to_vec(),
            patience,
            grace,
            starting: None,
            pick_next: None,
        }
    }

    /// Returns the CPUs with their topology, in the order given.
    #[must_use]
    pub fn places(&self) -> Vec<heddle_core::CpuInfo> {
        self.cpus.iter().map(|&cpu| cpu_info(cpu)).collect()
    }
}
