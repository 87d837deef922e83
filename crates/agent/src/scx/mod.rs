//! The sched_ext backend. Threads that opt in are parked in the kernel's queues, and an agent commits them by
//! running a program in the kernel (`bpf/sched/scx.bpf.c`).
//!
//! One set of programs serves all enclaves of the machine. It is pinned under `/sys/fs/bpf/heddle/agent`, so that
//! it outlives the process that loaded it, and every process that opens an enclave maps its memory.
//!
//! - **S1** Making or removing an enclave needs the lock of that folder; using one needs no lock.
//! - **S2** The words of an enclave are written before its phase says that it exists.

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

pub use enclave::EnclaveFlags;
pub use error::{Missing, ScxError};
pub use exit::{SchedulerExit, undo};
pub use probe::probe;

use commit::Regions;
use exit::Members;
use heddle_bpf::Link;
use heddle_core::CpuInfo;
use memory::Memory;
use programs::Calls;
use queues::Ends;
use std::sync::Mutex;
use unmanaged::Unmanaged;

/// The object with the kernel's programs, for tests that load it under another name.
#[doc(hidden)]
pub const OBJECT: &[u8] = crate::objects::SCX;

/// An enclave of the sched_ext backend, as its guardian or an agent uses it. Dropping it changes nothing: the
/// enclave lives until [`Scx::remove`], or until the kernel's programs see that its guardian and its agent are
/// gone.
pub struct Scx {
    memory: Memory,
    calls: Calls,
    id: u32,
    name: String,
    cpus: Vec<CpuInfo>,
    ends: Ends,
    regions: Regions,
    unmanaged: Mutex<Unmanaged>,
    members: Mutex<Members>,
    /// Held by the enclave's guardian: without a guardian threads run first in, first out.
    _pick_next: Option<Link>,
}

impl core::fmt::Debug for Scx {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Scx")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
