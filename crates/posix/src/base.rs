//! The first frame of a thread: where `pthread_exit` and cancellation end.
//!
//! The C library unwinds a thread that exits up to a buffer that its first function left in the descriptor. This is
//! that function for a task, made of the C library's public names. It works again for the next task on the descriptor.

use heddle_rt::raw::Entry;
use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn __sigsetjmp(buffer: *mut c_void, save_mask: c_int) -> c_int;
    fn __pthread_register_cancel(buffer: *mut c_void);
    fn __pthread_unregister_cancel(buffer: *mut c_void);
}

/// Calls `entry(argument)` and stores what it returns in `result`. Returns 0 if it returned, 1 if the thread left it by
/// the C library's `pthread_exit`.
///
/// # Safety
/// The contract of a thread's start routine. The caller is a task that runs no other such call.
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn call(
    entry: Entry,
    argument: *mut c_void,
    result: *mut *mut c_void,
) -> c_int {
    // The buffer, of 104 bytes, lies at the stack pointer. `longjmp` restores the callee-saved registers as
    // `__sigsetjmp` found them, so they hold the arguments on both returns.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "push r12",
        ".cfi_offset r12, -32",
        "push r13",
        ".cfi_offset r13, -40",
        "sub rsp, 264",
        "mov rbx, rdi",
        "mov r12, rsi",
        "mov r13, rdx",
        "mov rdi, rsp",
        "xor esi, esi",
        "call {setjmp}@PLT",
        "test eax, eax",
        "jnz 2f",
        "mov rdi, rsp",
        "call {register}@PLT",
        "mov rdi, r12",
        "call rbx",
        "mov [r13], rax",
        "mov rdi, rsp",
        "call {unregister}@PLT",
        "xor eax, eax",
        "jmp 3f",
        "2:",
        "mov eax, 1",
        "3:",
        "lea rsp, [rbp - 24]",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        setjmp = sym __sigsetjmp,
        register = sym __pthread_register_cancel,
        unregister = sym __pthread_unregister_cancel,
    )
}
