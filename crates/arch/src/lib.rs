//! Context switch, FS and GS bases: Heddle's assembly, and why it is correct. x86-64 Linux only.
//!
//! # Invariants
//!
//! - **I1** A suspended context is one word: its stack pointer. Everything else is on its stack.
//! - **I2** A switch preserves what the System V ABI calls callee-saved (rbx, rbp, r12-r15, the control
//!   bits of mxcsr and the x87 control word) and nothing more. A context that is suspended inside a signal
//!   handler has the rest in the kernel's frame.
//! - **I3** FS belongs to the task, GS to the worker. [`switch()`] loads the FS base of the context that it
//!   resumes and never touches GS.
//!
//! The reasons for the code's shape (measured, see `docs/design/runtime.md`): a `ret` into another stack mispredicts
//! and costs 9 ns, so the switch ends in a jump; a blind `ldmxcsr`/`fldcw` costs 40 ns because sticky flags nearly
//! always differ, so only control bits are compared and restored.

#![no_std]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("heddle's runtime needs x86-64 Linux; the policies and the simulator do not");

mod gs;
mod processor;
mod switch;
pub mod uintr;

pub use gs::{PreemptCount, gs_base, gs_word, set_gs_base};
pub use processor::learn_processor;
pub use switch::{Frame, resume, switch};

use core::arch::asm;

/// Returns the FS base: the address of the thread control block.
#[inline]
pub fn fs_base() -> usize {
    let base: usize;
    // SAFETY: the first word of the control block is its own address (x86-64 TLS ABI), and every Linux
    // thread with a C library has one.
    unsafe { asm!("mov {}, fs:[0]", out(reg) base, options(nostack, readonly, preserves_flags)) };
    base
}

/// Sets the FS base, and with it the meaning of every thread-local variable of this kernel thread.
///
/// # Safety
/// `base` is the address of an initialised thread control block which no other kernel thread runs on, and
/// the caller holds no reference to a thread-local variable of the old one.
#[inline]
pub unsafe fn set_fs_base(base: usize) {
    // SAFETY: by the caller's promise; `supported` was checked before any context was made.
    unsafe { asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

/// Returns whether user space may write FS and GS bases (AT_HWCAP2 bit 1: Linux 5.9 and later, any CPU since 2012).
pub fn fsgsbase_supported(hwcap2: u64) -> bool {
    hwcap2 & 2 != 0
}
