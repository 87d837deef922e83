//! What each thread, task or kernel thread, keeps of its own for mutexes.
//!
//! A `thread_local!` in a shared object costs a call of `__tls_get_addr`, where a signal does not preempt. The variable
//! is defined here in assembly because only so can stable Rust say that its offset is fixed when the library is
//! loaded: the library is loaded with the program, never by `dlopen`.

use super::robust::RobustList;
use crate::thread::Thread;
use heddle_rt::raw::{self, RawTask};
use std::arch::{asm, global_asm};
use std::cell::Cell;

/// All zero in a new thread.
#[repr(C)]
pub(super) struct Own {
    /// The thread's number; 0 until it is first needed.
    tid: Cell<u32>,
    /// How often in a row it failed to take `object`.
    failures: Cell<u32>,
    object: Cell<usize>,
    /// The robust mutexes that it holds, if it is a kernel thread. A task's are in its record.
    pub(super) robust: Cell<RobustList>,
}

const _: () = assert!(size_of::<Own>() == 24);

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heddle_posix_mutex_own",
    ".hidden heddle_posix_mutex_own",
    ".type heddle_posix_mutex_own, @object",
    ".size heddle_posix_mutex_own, 24",
    ".p2align 3",
    "heddle_posix_mutex_own:",
    ".zero 24",
    ".popsection",
);

impl Own {
    /// Returns the calling thread's.
    #[inline(always)]
    pub(super) fn get() -> &'static Own {
        let at: *const Own;
        // SAFETY: the first word of the control block is its own address, and the variable lies at a fixed offset from
        // it. The thread keeps both while it lives, on whatever worker.
        unsafe {
            asm!(
                "mov {at}, fs:[0]",
                "add {at}, [rip + heddle_posix_mutex_own@GOTTPOFF]",
                at = out(reg) at,
                options(pure, readonly, nostack),
            );
            &*at
        }
    }
}

/// Returns the number by which mutexes know the calling thread: what `gettid` answers there, and what the C library
/// has in the thread's descriptor.
#[inline(always)]
pub(crate) fn own_tid() -> u32 {
    match Own::get().tid.get() {
        0 => find_tid(),
        tid => tid,
    }
}

#[cold]
fn find_tid() -> u32 {
    let recorded = Thread::current().map_or(0, Thread::tid);
    let tid = match RawTask::current() {
        Some(_) if recorded != 0 => recorded,
        Some(_) => raw::block_number(),
        None => crate::sys::gettid(),
    };
    Own::get().tid.set(tid);
    tid
}

/// Makes the calling thread look its number up again: for the child after `fork`.
pub(crate) fn forget_tid() {
    Own::get().tid.set(0);
}

/// Yields if the calling task has failed to take the object at `object` many times in a row: it spins, perhaps for a
/// task that waits for its CPU.
#[cold]
pub(crate) fn failed_to_take(object: usize) {
    const PATIENCE: u32 = 64;
    let own = Own::get();
    let failures = if own.object.replace(object) == object { own.failures.get() + 1 } else { 1 };
    own.failures.set(failures % PATIENCE);
    if failures == PATIENCE && raw::Caller::here() == raw::Caller::Task {
        heddle_rt::yield_now();
    }
}
