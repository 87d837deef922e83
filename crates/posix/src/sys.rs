//! System calls by the instruction itself.
//!
//! The C library's wrappers would do as well, but many of their names are ours, and a signal that finds a task in this
//! code may preempt it: it holds no lock.

use std::arch::asm;

/// Makes system call `number`. Returns what the kernel returns: a negated error number if it failed.
///
/// # Safety
/// The call's own contract.
#[inline]
pub(crate) unsafe fn call(number: i64, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: by the caller's promise; the kernel preserves every register but these.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Calls [`call`] with as many arguments as there are.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let given: &[usize] = &[$($argument as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(given);
        $crate::sys::call($number, args)
    }};
}
pub(crate) use syscall;

/// Returns the number of the calling kernel thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_gettid) as u32 }
}
