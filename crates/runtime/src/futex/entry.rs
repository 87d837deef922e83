//! The C library's `syscall`.
//!
//! A definition in the program, or in a library that comes before the C library, is the one that all of them call.

use super::linked::Linked;
use super::{FUTEX2_REQUEUE, FUTEX2_WAITV, futex, futex2};
use heddle_sys::syscall::call;
use libc::c_long;
use std::arch::naked_asm;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What makes the calls of a program: all arguments that a call can have.
pub type Dispatch =
    unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// A range of code whose calls go to the kernel. Empty unless a thread library knows its own.
#[repr(C)]
struct Code {
    start: AtomicUsize,
    size: AtomicUsize,
}

static OWN: Code = Code { start: AtomicUsize::new(0), size: AtomicUsize::new(0) };

/// A [`Dispatch`].
static DISPATCH: AtomicPtr<()> = AtomicPtr::new(dispatch as *mut ());

/// Makes `dispatch` make the calls that come from elsewhere than the `size` bytes of code at `start`. Called by a
/// thread library before there is a second thread.
pub fn hook_syscall((start, size): (usize, usize), dispatch: Dispatch) {
    OWN.start.store(start, Ordering::Relaxed);
    OWN.size.store(size, Ordering::Relaxed);
    DISPATCH.store(dispatch as *mut (), Ordering::Release);
}

/// Converts a system call's result to a C function's: -1 with `errno` set if it is an error.
pub fn of_kernel(result: isize) -> isize {
    if !(-4095..0).contains(&result) {
        return result;
    }
    // SAFETY: the location is the calling thread's.
    unsafe { *libc::__errno_location() = -result as c_int };
    -1
}

/// The C library's `syscall`.
///
/// # Safety
/// The call's own contract.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // A call from the library's own code goes to the kernel. Any other goes on with the registers and the stack as they
    // are, which is how a `Dispatch` takes its arguments.
    naked_asm!(
        ".cfi_startproc",
        "mov rax, [rsp]",
        "sub rax, [rip + {own}]",
        "cmp rax, [rip + {own} + 8]",
        "jae 3f",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {failed}",
        "3:",
        "jmp [rip + {dispatch}]",
        ".cfi_endproc",
        own = sym OWN,
        dispatch = sym DISPATCH,
        failed = sym failed,
    )
}

/// Returns -1 with `errno` set.
extern "C" fn failed(result: isize) -> isize {
    of_kernel(result)
}

/// Makes a call of a program that links this crate.
unsafe extern "C" fn dispatch(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let args = [a, b, c, d, e, f];
    // SAFETY: the caller's contract.
    let result = unsafe {
        match number {
            libc::SYS_futex => futex::<Linked>(args),
            FUTEX2_WAITV..=FUTEX2_REQUEUE => futex2::<Linked>(number, args),
            _ => call(number, args),
        }
    };
    of_kernel(result) as c_long
}
