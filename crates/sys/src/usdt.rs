//! Static probes (USDT) of provider `heddle`, at which tracers such as bpftrace, perf and gdb stop a program.
//! `docs/observe.md` lists them with their arguments.
//!
//! They are on slow paths only: each hit costs an interrupt while a tracer is attached. Frequent events go into rings
//! instead (`heddle-telemetry`). Without a tracer a probe is a call of a function that returns at once.
//!
//! The `nop` must be one byte long. Linux 6.18 turns a tracer's stop at a `nop` of five bytes into a call, whose return
//! address overwrites what a function without a stack frame keeps below the stack pointer (its red zone).
//!
//! A probe's function and the note that names its place are in one section group, so that a linker drops both where
//! nothing calls it. A note alone would lead tracers to a place where something else lies: gdb writes its breakpoint
//! there.
//!
//! Text is passed as address and length, in bytes, without a zero at its end.

use heddle_core::Layer;
use std::arch::global_asm;

/// Defines the function `heddle_usdt_NAME`: the probe `NAME`, whose arguments are those of the function.
/// `<sys/sdt.h>` of SystemTap is the model of its note: place, base, semaphore, provider, name, arguments.
macro_rules! probe {
    ($name:literal, $arguments:literal) => {
        global_asm!(concat!(
            ".pushsection .text.heddle_usdt_",
            $name,
            ",\"axG\",@progbits,heddle_usdt_",
            $name,
            ",comdat\n",
            ".weak heddle_usdt_",
            $name,
            "\n",
            ".hidden heddle_usdt_",
            $name,
            "\n",
            ".type heddle_usdt_",
            $name,
            ",@function\n",
            "heddle_usdt_",
            $name,
            ":\n",
            ".cfi_startproc\n",
            "990: nop\n",
            "ret\n",
            ".cfi_endproc\n",
            ".size heddle_usdt_",
            $name,
            ", . - heddle_usdt_",
            $name,
            "\n",
            ".popsection\n",
            ".pushsection .note.stapsdt,\"G\",@note,heddle_usdt_",
            $name,
            ",comdat\n",
            ".balign 4\n",
            ".4byte 992f - 991f, 994f - 993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b\n",
            ".8byte _.stapsdt.base\n",
            ".8byte 0\n",
            ".asciz \"heddle\"\n",
            ".asciz \"",
            $name,
            "\"\n",
            ".asciz \"",
            $arguments,
            "\"\n",
            "994: .balign 4\n",
            ".popsection\n",
            ".ifndef _.stapsdt.base\n",
            ".pushsection .stapsdt.base,\"aG\",@progbits,.stapsdt.base,comdat\n",
            ".weak _.stapsdt.base\n",
            ".hidden _.stapsdt.base\n",
            "_.stapsdt.base: .space 1\n",
            ".size _.stapsdt.base, 1\n",
            ".popsection\n",
            ".endif\n",
        ));
    };
}

probe!("policy_replaced", "8@%rdi 8@%rsi 8@%rdx 8@%rcx");
probe!("agent_gone", "8@%rdi 8@%rsi 8@%rdx");
probe!("worker_stuck", "8@%rdi 8@%rsi 8@%rdx -8@%rcx");
probe!("stack_overflow", "8@%rdi 8@%rsi 8@%rdx");
probe!("preempt_sent", "8@%rdi 8@%rsi");

// SAFETY: defined above; they read and write nothing.
unsafe extern "C" {
    safe fn heddle_usdt_policy_replaced(layer: u64, id: u64, policy: *const u8, length: usize);
    safe fn heddle_usdt_agent_gone(pid: u64, why: *const u8, length: usize);
    safe fn heddle_usdt_worker_stuck(cpu: usize, tid: u64, task: u64, call: i64);
    safe fn heddle_usdt_stack_overflow(task: u64, address: usize, size: usize);
    safe fn heddle_usdt_preempt_sent(cpu: usize, tid: u64);
}

/// Marks that `policy` has replaced another, in attachment `id` (steering) or with agent process `id` (agents).
#[inline]
pub fn policy_replaced(layer: Layer, id: u32, policy: &str) {
    heddle_usdt_policy_replaced(layer as u64, id.into(), policy.as_ptr(), policy.len());
}

/// Marks that agent process `pid` no longer schedules (0: it is not known), for the reason `why`.
#[inline]
pub fn agent_gone(pid: u32, why: &str) {
    heddle_usdt_agent_gone(pid.into(), why.as_ptr(), why.len());
}

/// Marks that the worker on kernel thread `tid` has lost the runtime's CPU number `cpu` to another worker, because its
/// `task` sleeps in system call number `call` (-1: not known).
#[inline]
pub fn worker_stuck(cpu: usize, tid: u32, task: u32, call: i64) {
    heddle_usdt_worker_stuck(cpu, tid.into(), task.into(), call);
}

/// Marks that `task` has overflowed its stack of `size` bytes by an access to `address` (0: the kernel had no room for
/// a signal's frame). The process ends next.
#[inline]
pub fn stack_overflow(task: u32, address: usize, size: usize) {
    heddle_usdt_stack_overflow(task.into(), address, size);
}

/// Marks that a signal was sent to kernel thread `tid`, the worker of the runtime's CPU number `cpu`, to preempt its
/// task.
#[inline]
pub fn preempt_sent(cpu: usize, tid: u32) {
    heddle_usdt_preempt_sent(cpu, tid.into());
}
