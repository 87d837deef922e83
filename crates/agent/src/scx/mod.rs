//! The sched_ext backend: threads that opt in are parked in the kernel's queues, and a commit is a program of the kernel's that the
//! agent runs (`bpf/sched/scx.bpf.c`).
//!
//! One set of programs serves all enclaves of the machine; it is pinned under `/sys/fs/bpf/heddle/agent`, so that it outlives the
//! process that made it, and its memory is mapped by every process that opens an enclave.
//!
//! - **S1** Who makes or removes an enclave holds the lock of that folder; whoever only uses one needs no lock.
//! - **S2** The words of an enclave are written before its state says that it is there.

mod backend;
mod commit;
mod enclave;
mod error;
mod exit;
mod lifecycle;
mod memory;
mod probe;
mod programs;
mod queues;
mod threads;
mod unmanaged;

pub use enclave::News;
pub use error::{Missing, ScxError};
pub use exit::{SchedulerExit, undo};
pub use probe::probe;

use commit::Lanes;
use exit::Noted;
use heddle_core::CpuInfo;
use memory::Memory;
use programs::Calls;
use queues::Ends;
use std::sync::Mutex;
use unmanaged::Strangers;

/// The object with the kernel's programs, for tests that load it under another name.
#[doc(hidden)]
pub const OBJECT: &[u8] = crate::objects::SCX;

/// An enclave of the sched_ext backend, as its guardian or an agent has it. Dropping it changes nothing: the enclave lives until
/// [`Scx::remove`], or until the kernel's programs see that its guardian and its agent are gone.
pub struct Scx {
    memory: Memory,
    calls: Calls,
    id: u32,
    name: String,
    cpus: Vec<CpuInfo>,
    ends: Ends,
    lanes: Lanes,
    strangers: Mutex<Strangers>,
    noted: Mutex<Noted>,
}

impl core::fmt::Debug for Scx {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Scx")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
