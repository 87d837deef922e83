//! The real-time backend: agents on kernels without sched_ext, by means of policies and CPU masks that every Linux
//! has.
//!
//! The kernel side (`bpf/sched/rt.bpf.c`) watches managed threads from tracepoints and sends messages; this side
//! carries decisions out by system calls. A committed thread has `SCHED_FIFO` 1 and one CPU; a parked one has
//! `SCHED_IDLE`. `docs/agents/real-time.md` says what that means for users, and what is weaker than with sched_ext.
//!
//! - **R1** A thread's state, commitment and sequence number are one word (`state_word.rs`): a commit is one
//!   compare-and-swap of it and cannot rest on an old message. The system calls that carry it out come after, and
//!   are undone if the thread has changed meanwhile.
//! - **R2** A thread's original settings (policy, nice value, CPUs) are never lost: they are written where they
//!   outlive every process of ours before anything is changed, and restored by whichever process finds them
//!   ([`Rt::undo`]).
//! - **R3** No managed thread gets a higher priority than `SCHED_FIFO` 1, and its children start as ordinary threads.
//! - **R4** If a thread's policy or mask is not what was set here, another program has set it, and that setting
//!   wins.

mod backend;
mod commit;
mod create;
mod enforce;
mod error;
#[cfg(test)]
mod hostile;
mod memory;
mod online;
mod patience;
mod probe;
mod queues;
mod resize;
mod state_word;
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

/// An enclave of the real-time backend. The process that made it removes it by dropping it.
pub struct Rt {
    name: String,
    /// The folder of all pins, which outlive this process.
    folder: PathBuf,
    cpus: Vec<CpuInfo>,
    memory: Memory,
    tracer: Tracer,
    channels: Channels,
    /// Held while this process changes policies and masks of threads, so that a decision from a thread's word is
    /// still valid when it is carried out.
    enforcing: Mutex<()>,
    last_check: Mutex<patience::LastCheck>,
    is_owner: bool,
}

impl Rt {
    /// Returns the enclave's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of children of managed threads for which there was no slot. They are unmanaged, never
    /// real-time, and parked if their parents were.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.memory
            .enclave(memory::EnclaveField::Refused)
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the position of an operating system's CPU in the enclave.
    fn os_cpu(&self, cpu: heddle_core::CpuId) -> Option<u32> {
        self.cpus.get(cpu.index()).map(|info| info.os_id)
    }

    fn enforcing(&self) -> std::sync::MutexGuard<'_, ()> {
        // The lock guards no data: the state after a panic is in the words.
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
            // There is no caller to report to. The next command that reads the enclaves finds what is left.
            let _ = self.take_down();
        }
    }
}
