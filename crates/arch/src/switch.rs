//! The switch between two contexts.

use core::arch::naked_asm;

/// What [`switch`] leaves on the stack of a suspended context, lowest address first (I1, I2).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    mxcsr: u32,
    fcw: u32,
    r15: usize,
    r14: usize,
    r13: usize,
    r12: usize,
    rbx: usize,
    rbp: usize,
    rip: usize,
}

impl Frame {
    /// Bytes that a fresh context needs on its stack; keeps the stack aligned to 16.
    pub const SIZE: usize = size_of::<Frame>();

    /// The frame of a context that has not run yet: when it is switched to, it calls `entry(arg)` with the
    /// default floating-point control words and a stack that is aligned as the ABI wants.
    ///
    /// The frame has to be written to an address that is a multiple of 16, and that address is the saved
    /// stack pointer.
    pub fn new(entry: extern "C" fn(usize) -> !, arg: usize) -> Frame {
        Frame {
            mxcsr: 0x1f80,
            fcw: 0x037f,
            r15: 0,
            r14: 0,
            r13: entry as usize,
            r12: arg,
            rbx: 0,
            // A zero frame pointer ends the chain for profilers that walk frame pointers.
            rbp: 0,
            rip: start as *const () as usize,
        }
    }
}

/// Suspends the running context, whose stack pointer goes to `*save`, and resumes the one at `load` with FS
/// base `fs`. Returns when somebody resumes the suspended one; by then the kernel thread, and so GS, may be
/// another.
///
/// # Safety
/// `load` is a stack pointer that `switch` saved or the address of a [`Frame`], and is resumed once; `fs` is
/// the FS base that belongs to it. Nobody resumes `*save` before this context is off its stack: the caller
/// holds a lock across the switch that the resumed context releases.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut usize, load: usize, fs: usize) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r14, 0",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r15, 0",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        // Compare the control bits of both contexts; the status flags (low six bits) travel along unrestored.
        "mov eax, [rsp]",
        "movzx ecx, word ptr [rsp + 4]",
        "mov rsp, rsi",
        "xor eax, [rsp]",
        "xor cx, [rsp + 4]",
        "and eax, 0xffc0",
        "wrfsbase rdx",
        "or eax, ecx",
        "jnz 3f",
        "2:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r15",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r14",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r13",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        // Not `ret`: the return predictor has never seen this stack.
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rcx",
        "jmp rcx",
        ".cfi_endproc",
        // Out of line: the control words differ.
        ".cfi_startproc",
        ".cfi_def_cfa rsp, 64",
        "3:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "jmp 2b",
        ".cfi_endproc",
    )
}

/// First instructions of a fresh context: calls `r13(r12)`, which never returns.
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        // Nothing is above this frame: unwinders and debuggers stop here.
        ".cfi_undefined rip",
        "mov rdi, r12",
        "xor ebp, ebp",
        "call r13",
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
