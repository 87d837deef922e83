//! System calls without the C library.

use core::arch::asm;
use core::ffi::c_long;

/// Makes system call `number` by the instruction itself. Returns what the kernel returns: a negated error number if it
/// failed. Touches no thread-local variable, while the C library's wrapper sets errno, and the one of a program that
/// links the runtime asks what runs it.
///
/// # Safety
/// The call's own contract.
#[inline]
pub unsafe fn call(number: c_long, args: [usize; 6]) -> isize {
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
