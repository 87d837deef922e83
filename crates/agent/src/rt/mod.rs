//! The real-time backend: agents on kernels without sched_ext, by policies and CPU masks that every Linux has.
//!
//! The kernel's half (`bpf/sched/rt.bpf.c`) watches managed threads from tracepoints and sends messages; this half carries decisions
//! out by system calls. A thread that is committed has `SCHED_FIFO` 1 and one CPU; one that is parked has `SCHED_IDLE`. What that
//! means for a user, and what is weaker than with sched_ext, says `docs/agents/real-time.md`.
//!
//! - **R1** A thread's state, commitment and sequence number are one word (`live.rs`): a commit is one compare-and-swap of it and cannot
//!   rest on old news. The system calls that carry it out come after, and are undone where the thread has changed meanwhile.
//! - **R2** Of what a thread was before it came (policy, nice value, CPUs) nothing is lost: it is written down, where it
//!   outlives every process of ours, before anything is changed, and given back by whoever finds it ([`Rt::undo`]).
//! - **R3** No managed thread gets a higher priority than `SCHED_FIFO` 1, and its children start as ordinary threads.
//! - **R4** Where the policy or the mask of a thread is not what was set here, somebody else has set it and wins.

mod backend;
mod commit;
mod create;
mod enforce;
mod error;
#[cfg(test)]
mod hostile;
mod live;
mod memory;
mod patience;
mod probe;
mod queues;
mod threads;
mod tracer;

pub use error::{Missing, RtError};
pub use probe::probe;

use heddle_core::CpuInfo;
use memory::Memory;
use queues::Channels;
use std::path::PathBuf;
use std::sync::Mutex;
use tracer::Tracer;

/// An enclave of the real-time backend. Who has made it removes it when dropped.
pub struct Rt {
    name: String,
    /// Where everything is pinned that outlives this process.
    folder: PathBuf,
    cpus: Vec<CpuInfo>,
    memory: Memory,
    tracer: Tracer,
    channels: Channels,
    /// Held while policies and masks of threads are changed by this process, so that what is decided from a word of a thread is still
    /// so when it is done.
    enforcing: Mutex<()>,
    looked: Mutex<patience::Looked>,
    is_owner: bool,
}

impl Rt {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Children of managed threads for which there was no slot: they are nobody's, never real-time, and parked if their parents were.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.memory
            .enclave(memory::EnclaveField::Refused)
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The position of an operating system's CPU in the enclave.
    fn os_cpu(&self, cpu: heddle_core::CpuId) -> Option<u32> {
        self.cpus.get(cpu.index()).map(|info| info.os_id)
    }

    fn enforcing(&self) -> std::sync::MutexGuard<'_, ()> {
        // It guards no data: what a panic left is in the words.
        self.enforcing.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl std::fmt::Debug for Rt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rt")
            .field("name", &self.name)
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}

impl Drop for Rt {
    fn drop(&mut self) {
        if self.is_owner {
            // Nobody is left to tell; what could not be done, the next command that looks finds.
            let _ = self.take_down();
        }
    }
}
