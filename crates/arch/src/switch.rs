//! The switch between two contexts.

use crate::processor;
use core::arch::{asm, naked_asm};

/// The stack contents of a context that has not run yet, lowest address first. A suspended context has the first two
/// words, then its rbx and rbp, then its own frames (I1, I2).
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    mxcsr: u32,
    fcw: u32,
    rip: usize,
    arg: usize,
    entry: extern "C" fn(usize) -> !,
}

impl Frame {
    /// Bytes that a fresh context needs on its stack; keeps the stack aligned to 16.
    pub const SIZE: usize = size_of::<Frame>();

    /// Returns the frame of a context that has not run yet: when switched to, it calls `entry(arg)` with the default
    /// floating-point control words and a stack aligned as the ABI requires.
    ///
    /// The frame must be written to an address that is a multiple of 16, and that address is the saved
    /// stack pointer.
    pub fn new(entry: extern "C" fn(usize) -> !, arg: usize) -> Frame {
        Frame { mxcsr: 0x1f80, fcw: 0x037f, rip: start as *const () as usize, arg, entry }
    }
}

/// Suspends the running context, whose stack pointer goes to `*save`, and resumes the one at `load` with FS
/// base `fs`. Returns when the suspended context is resumed; by then the kernel thread, and so GS, may be
/// another.
///
/// Always inlined, for a reason: every `ret` between here and the code that waits is predicted from the calls that the
/// *other* context made, wrongly unless both took the same path, at 9 ns each. Callee-saved registers are declared
/// clobbered, so the compiler saves those that it uses; rbx and rbp, which it reserves, are pushed.
///
/// # Safety
/// `load` is a stack pointer that `switch` saved or the address of a [`Frame`], and is resumed once; `fs` is the FS
/// base that belongs to it. `*save` is not resumed before this context is off its stack: the caller holds a lock across
/// the switch that the resumed context releases.
#[inline(always)]
pub unsafe fn switch(save: *mut usize, load: usize, fs: usize) {
    // SAFETY: by the caller's promise. What the asm pushes it pops when it is resumed; everything else that the
    // compiler may have in registers is declared clobbered.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "sub rsp, 8",
            "stmxcsr [rsp]",
            "fnstcw [rsp + 4]",
            "mov [rdi], rsp",
            // Compare the control bits of both contexts; the status flags (low six bits) are carried over unrestored.
            "mov eax, [rsp]",
            "movzx ecx, word ptr [rsp + 4]",
            "xor eax, [rsi]",
            "xor cx, [rsi + 4]",
            "and eax, 0xffc0",
            "wrfsbase rdx",
            "or eax, ecx",
            "jz 3f",
            "ldmxcsr [rsi]",
            "fldcw [rsi + 4]",
            "3:",
            "lea rsp, [rsi + 16]",
            // Not `ret`: the return predictor has never seen this stack.
            "jmp [rsi + 8]",
            "2:",
            "pop rbx",
            "pop rbp",
            inout("rdi") save => _,
            inout("rsi") load => _,
            inout("rdx") fs => _,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// Resumes the context at `load` with FS base `fs` for good: [`switch()`] for a context that has ended, which saves
/// nothing.
///
/// If the processor loads mxcsr fast ([`crate::learn_processor`]), the old value is not read for comparison.
///
/// # Safety
/// As for [`switch()`]; the calling context is never resumed, and its stack stays valid until the resumed one releases
/// it.
#[inline(always)]
pub unsafe fn resume(load: usize, fs: usize) -> ! {
    let blindly = u32::from(processor::loads_mxcsr_fast());
    // SAFETY: by the caller's promise. What lies up to 128 bytes below the stack pointer is spared by signal handlers.
    unsafe {
        asm!(
            "xor eax, eax",
            "fnstcw [rsp - 8]",
            "test edi, edi",
            "jnz 2f",
            "stmxcsr [rsp - 16]",
            "mov eax, [rsp - 16]",
            "xor eax, [rsi]",
            "and eax, 0xffc0",
            "jmp 3f",
            "2:",
            "ldmxcsr [rsi]",
            "3:",
            "movzx ecx, word ptr [rsp - 8]",
            "xor cx, [rsi + 4]",
            "wrfsbase rdx",
            "or eax, ecx",
            "jz 4f",
            "ldmxcsr [rsi]",
            "fldcw [rsi + 4]",
            "4:",
            "lea rsp, [rsi + 16]",
            "jmp [rsi + 8]",
            in("edi") blindly,
            in("rsi") load,
            in("rdx") fs,
            options(noreturn),
        );
    }
}

/// First instructions of a fresh context: calls `entry(arg)`, which never returns.
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        // Nothing is above this frame: unwinders, debuggers and profilers that walk frame pointers stop here.
        ".cfi_undefined rip",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "xor ebp, ebp",
        "call rax",
        "ud2",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::fs_base;
    use std::boxed::Box;
    use std::vec;

    /// A context on a heap stack and the one that started it.
    struct Pair {
        main: usize,
        other: usize,
        fs: usize,
        visits: u32,
    }

    extern "C" fn visit(pair: usize) -> ! {
        let pair = pair as *mut Pair;
        loop {
            // SAFETY: `main` waits inside `switch` and keeps the pair alive; control alternates.
            unsafe {
                (*pair).visits += 1;
                set_mxcsr(0x1f80 | 0x6000);
                switch(&raw mut (*pair).other, (*pair).main, (*pair).fs);
                assert_eq!(
                    mxcsr() & 0xffc0,
                    0x1f80 | 0x6000,
                    "each context keeps its rounding mode"
                );
            }
        }
    }

    extern "C" fn leave_for_good(pair: usize) -> ! {
        let pair = pair as *mut Pair;
        // SAFETY: as in `visit`; this context never runs again.
        unsafe {
            (*pair).visits += 1;
            set_mxcsr(0x1f80 | 0x6000);
            resume((*pair).main, (*pair).fs)
        }
    }

    #[test]
    fn a_context_that_ends_leaves_the_next_one_its_control_words() {
        for fast in [true, false] {
            crate::processor::pretend(fast);
            let mut stack = vec![0u128; 4096];
            let sp = (stack.as_mut_ptr_range().end as usize) - Frame::SIZE;
            let mut pair = Pair { main: 0, other: sp, fs: fs_base(), visits: 0 };
            // SAFETY: as below; the other context ends, and its stack is dropped after that.
            unsafe {
                (sp as *mut Frame).write(Frame::new(leave_for_good, &raw mut pair as usize));
                switch(&raw mut pair.main, pair.other, pair.fs);
            }
            assert_eq!((pair.visits, mxcsr() & 0xffc0), (1, 0x1f80));
        }
    }

    fn mxcsr() -> u32 {
        let mut v = 0u32;
        // SAFETY: stores a register to a local.
        unsafe { core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut v, options(nostack)) };
        v
    }

    unsafe fn set_mxcsr(v: u32) {
        // SAFETY: control bits only, exceptions masked.
        unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const v, options(nostack)) };
    }

    #[test]
    fn two_contexts_take_turns_and_keep_their_control_words() {
        let mut stack = vec![0u128; 4096];
        let sp = (stack.as_mut_ptr_range().end as usize) - Frame::SIZE;
        let pair = Box::into_raw(Box::new(Pair { main: 0, other: sp, fs: fs_base(), visits: 0 }));
        // SAFETY: the frame lies inside `stack` at a multiple of 16, and both contexts run on this thread.
        unsafe {
            (sp as *mut Frame).write(Frame::new(visit, pair as usize));
            for _ in 0..1000 {
                switch(&raw mut (*pair).main, (*pair).other, (*pair).fs);
                assert_eq!(mxcsr() & 0xffc0, 0x1f80);
            }
            assert_eq!((*pair).visits, 1000);
            drop(Box::from_raw(pair));
        }
    }
}
