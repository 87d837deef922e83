//! Where user interrupts arrive, and how a signal's handler and they keep out of each other's way.
//!
//! The handler of a user interrupt is entered with further ones held off, by the processor. What holds for signals (see
//! the parent module) holds for it, with two differences. It saves the registers itself: the kernel does not see it.
//! And it has no mask that is restored where the task goes on, so it lets interrupts in again before it leaves its task
//! and holds them off when it is back; the preempt count is above zero in between. UIRET lets them in for good.
//!
//! # Signals and user interrupts
//!
//! Some requests still are signals: from other programs, from threads that cannot register, for a thread library. If
//! one kind interrupts the handler of the other before that has raised the preempt count, it must not leave the task:
//! the handler of a signal would leave the signal blocked in the thread, that of an interrupt the interrupts. So the
//! signal's handler begins with CLUI and ends with STUI ([`signal_entry`]): where it finds user interrupts held off
//! already, it has interrupted their handler and leaves a pending bit only. A user interrupt in the few instructions
//! around the two does the same ([`is_signals`]).

use super::{on_preempt, on_preempt_inside, on_user_interrupt};
use crate::uintr::{AREA, COMPONENTS};
use crate::worker::{ASKED, HAS_TICKS, LOOK_AT, REPOST};
use std::arch::naked_asm;

/// The handler of user interrupts. In a task with preemption on, and whose time to look has come if the interrupt is a
/// tick, it calls [`on_user_interrupt`]; with preemption off it leaves the pending bit.
///
/// On the stack are the vector, and the interrupted instruction's address, flags and stack pointer.
///
/// # Safety
/// Entered by the processor, in a thread that has a worker's block behind GS.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn entry() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "push rax",
        // A delegated timer's next tick needs something posted.
        "mov eax, gs:[{repost}]",
        "cmp eax, -1",
        "je 2f",
        "senduipi rax",
        "2:",
        "test dword ptr gs:[8], 0x7fffffff",
        "jnz 8f",
        "cmp byte ptr gs:[{has_ticks}], 0",
        "je 4f",
        "cmp byte ptr gs:[{asked}], 0",
        "jne 4f",
        "push rdx",
        "rdtsc",
        "shl rdx, 32",
        "or rax, rdx",
        "pop rdx",
        "cmp rax, gs:[{look_at}]",
        "jb 9f",
        "4:",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "mov rbx, rsp",
        "cld",
        // Ten registers and the vector are above.
        "mov rdi, [rsp + 88]",
        "mov rsi, [rsp + 104]",
        "sub rsp, [rip + {area}]",
        "and rsp, -64",
        // XSAVEC writes the first two words of the header, and XRSTOR wants the rest zero.
        "xor eax, eax",
        "mov [rsp + 528], rax",
        "mov [rsp + 536], rax",
        "mov [rsp + 544], rax",
        "mov [rsp + 552], rax",
        "mov [rsp + 560], rax",
        "mov [rsp + 568], rax",
        "mov eax, [rip + {components}]",
        "mov edx, [rip + {components} + 4]",
        "xsavec [rsp]",
        "call {on_user_interrupt}",
        "mov eax, [rip + {components}]",
        "mov edx, [rip + {components} + 4]",
        "xrstor [rsp]",
        "mov rsp, rbx",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "9:",
        "pop rax",
        "add rsp, 8",
        "uiret",
        "8:",
        "and dword ptr gs:[8], 0x7fffffff",
        "jmp 9b",
        ".cfi_endproc",
        repost = const REPOST,
        has_ticks = const HAS_TICKS,
        asked = const ASKED,
        look_at = const LOOK_AT,
        area = sym AREA,
        components = sym COMPONENTS,
        on_user_interrupt = sym on_user_interrupt,
    )
}

/// The handler of the runtime's signal in a process with user interrupts.
#[unsafe(naked)]
pub(super) extern "C" fn signal_entry(
    _signal: i32,
    _info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "testui",
        "jnc 2f",
        "clui",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {on_preempt}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "stui",
        "ret",
        "2:",
        "jmp {inside}",
        // So much belongs to it; see `is_signals`.
        ".balign 64",
        ".cfi_endproc",
        on_preempt = sym on_preempt,
        inside = sym on_preempt_inside,
    )
}

/// Bytes of [`signal_entry`], padding included.
const SIGNAL_ENTRY: usize = 64;

/// Returns whether the instruction at `at` is one of [`signal_entry`]. What follows it, the C library's return from
/// signals, is code that is not preempted anyway.
pub(super) fn is_signals(at: usize) -> bool {
    let start = signal_entry as *const () as usize;
    (start..start + SIGNAL_ENTRY).contains(&at)
}
