//! Tasks with probes lose the CPU where their code says so, without a signal, and notice nothing.
//!
//! The probes are written out here in assembly, as `compiler/pass/Probes.cpp` has them made; those that compilers make
//! are tested by `scripts/test-probes`.

mod common;

use common::{spin_until, wait_until};
use heddle_rt::{Builder, Class, Mechanism, Runtime, RuntimeBuilder, no_preempt, spawn};
use std::arch::global_asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

global_asm!(
    // The object's note: owner, type 1, version 1, and where the hook is.
    ".pushsection .note.heddle,\"a\",@note",
    ".p2align 2",
    ".long 14, 8, 1",
    ".ascii \"Heddle-probes\\0\\0\\0\"",
    ".long 1",
    ".long test_probe_hook - .",
    ".popsection",
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 4",
    "test_probe_state:",
    ".zero 16",
    ".popsection",
    ".pushsection .data",
    ".p2align 3",
    "test_probe_hook: .quad 0",
    ".popsection",
    // What `__heddle_probe` is.
    "test_probe:",
    "mov r11, [rip + test_probe_state@GOTTPOFF]",
    "cmp qword ptr [rip + test_probe_hook], 0",
    "je 2f",
    "jmp [rip + test_probe_hook]",
    "2:",
    "mov dword ptr fs:[r11], 0x100000",
    "ret",
    // test_probes(times): passes a probe so often, each for the cost of 100 units. Meanwhile every register that is
    // preserved holds something of its own. Returns 0, or the number of the first that was lost.
    ".globl test_probes",
    "test_probes:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov r15, rdi",
    "mov rcx, 0x11",
    "mov rdx, 0x12",
    "mov rsi, 0x13",
    "mov rdi, 0x14",
    "mov r8, 0x15",
    "mov r9, 0x16",
    "mov r10, 0x17",
    "mov rbx, 0x18",
    "mov rbp, 0x19",
    "mov r12, 0x1a",
    "mov r13, 0x1b",
    "mov r14, [rip + test_probe_state@GOTTPOFF]",
    "movq xmm0, r15",
    "movq xmm1, rcx",
    "movq xmm7, rdx",
    "movq xmm15, rsi",
    "3:",
    "mov rax, 0x10",
    "sub dword ptr fs:[r14], 100",
    "jae 4f",
    "call test_probe",
    "4:",
    "cmp rax, 0x10",
    "jne 5f",
    "dec r15",
    "jnz 3b",
    "mov rax, 1",
    "cmp rcx, 0x11",
    "jne 6f",
    "mov rax, 2",
    "cmp rdx, 0x12",
    "jne 6f",
    "mov rax, 3",
    "cmp rsi, 0x13",
    "jne 6f",
    "mov rax, 4",
    "cmp rdi, 0x14",
    "jne 6f",
    "mov rax, 5",
    "cmp r8, 0x15",
    "jne 6f",
    "mov rax, 6",
    "cmp r9, 0x16",
    "jne 6f",
    "mov rax, 7",
    "cmp r10, 0x17",
    "jne 6f",
    "mov rax, 8",
    "cmp rbx, 0x18",
    "jne 6f",
    "mov rax, 9",
    "cmp rbp, 0x19",
    "jne 6f",
    "mov rax, 10",
    "cmp r12, 0x1a",
    "jne 6f",
    "mov rax, 11",
    "cmp r13, 0x1b",
    "jne 6f",
    "mov rax, 12",
    "movq r11, xmm1",
    "cmp r11, 0x11",
    "jne 6f",
    "movq r11, xmm7",
    "cmp r11, 0x12",
    "jne 6f",
    "movq r11, xmm15",
    "cmp r11, 0x13",
    "jne 6f",
    "mov rax, 0",
    "jmp 6f",
    "5:",
    "mov rax, 13",
    "6:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn test_probes(times: u64) -> u64;
}

/// Passes a thousand probes, some 50 us, and fails if one of them has lost a register.
fn pass_probes() {
    // SAFETY: the function above, which follows the calling convention.
    assert_eq!(unsafe { test_probes(1000) }, 0, "the first register that was lost");
}

/// Passes probes until `done` says so.
fn probe_until(done: impl Fn() -> bool) {
    while !done() {
        pass_probes();
    }
}

fn runtime(policy: &str) -> Runtime {
    RuntimeBuilder::new().policy(policy).workers(1).mechanism(Mechanism::Probe).build().unwrap()
}

#[test]
fn tasks_take_turns_at_probes_and_keep_their_registers() {
    let rt = runtime("round-robin:quantum=5us");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            rt.spawn(move || probe_until(|| stop.load(Ordering::Relaxed)))
        })
        .collect();
    wait_until(|| rt.stats().preemptions >= 10_000);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    let stats = rt.stats();
    assert!(stats.probes >= stats.preemptions - stats.interrupts, "{stats:?}");
    assert!(stats.interrupts < stats.probes / 10, "signals are the exception: {stats:?}");
}

#[test]
fn the_wide_half_of_vectors_is_kept() {
    if !std::is_x86_feature_detected!("avx") {
        return;
    }
    let rt = runtime("round-robin:quantum=5us");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (1..=3u64)
        .map(|i| {
            let stop = stop.clone();
            rt.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (mut first, mut last) = ([i; 4], [i + 100; 4]);
                    // SAFETY: the function follows the calling convention; wide vectors that it may use are declared
                    // clobbered, except those that it is to keep, as a probe does.
                    unsafe {
                        std::arch::asm!(
                            "vmovups ymm2, [{first}]",
                            "vmovups ymm14, [{last}]",
                            "call test_probes",
                            "vmovups [{first}], ymm2",
                            "vmovups [{last}], ymm14",
                            "vzeroupper",
                            first = in(reg) &raw mut first,
                            last = in(reg) &raw mut last,
                            inout("rdi") 1000u64 => _,
                            clobber_abi("C"),
                        );
                    }
                    assert_eq!((first, last), ([i; 4], [i + 100; 4]));
                }
            })
        })
        .collect();
    wait_until(|| rt.stats().preemptions >= 5_000);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

#[test]
fn a_task_that_computes_alone_makes_way_for_one_that_arrives() {
    for policy in
        ["round-robin:quantum=20us", "two-queue:quantum=5us", "work-stealing:quantum=20us"]
    {
        let rt = runtime(policy);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let long = rt.spawn(move || probe_until(|| seen.load(Ordering::Relaxed)));
        for _ in 0..200 {
            // By now the long one has exceeded its quantum alone.
            std::thread::sleep(std::time::Duration::from_micros(100));
            rt.spawn(|| {}).join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        long.join().unwrap();
        let stats = rt.stats();
        assert!(stats.probes >= 1 && stats.preemptions >= 1, "{policy}: {stats:?}");
    }
}

#[test]
fn a_probe_waits_for_the_end_of_a_section_without_preemption() {
    let rt = runtime("round-robin:quantum=5us");
    let (inside, wrong, sections) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (inside, wrong, sections) = (inside.clone(), wrong.clone(), sections.clone());
            let stop = stop.clone();
            rt.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    no_preempt(|| {
                        if inside.swap(true, Ordering::Relaxed) {
                            wrong.fetch_add(1, Ordering::Relaxed);
                        }
                        pass_probes();
                        inside.store(false, Ordering::Relaxed);
                    });
                    sections.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    wait_until(|| rt.stats().preemptions >= 100 && sections.load(Ordering::Relaxed) >= 200);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "a section was preempted");
}

#[test]
fn a_probe_keeps_errno() {
    let rt = runtime("round-robin:quantum=5us");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (1..=2)
        .map(|number| {
            let stop = stop.clone();
            rt.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // SAFETY: the task's own variable.
                    unsafe { *libc::__errno_location() = number };
                    pass_probes();
                    // SAFETY: as above.
                    assert_eq!(unsafe { *libc::__errno_location() }, number);
                }
            })
        })
        .collect();
    wait_until(|| rt.stats().preemptions >= 1000);
    stop.store(true, Ordering::Relaxed);
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

#[test]
fn code_without_probes_is_interrupted_by_a_signal() {
    let rt = runtime("round-robin:quantum=5us");
    let done = Arc::new(AtomicBool::new(false));
    let (seen, set) = (done.clone(), done.clone());
    let long = rt.spawn(move || spin_until(|| seen.load(Ordering::Relaxed)));
    rt.spawn(move || set.store(true, Ordering::Relaxed)).join().unwrap();
    long.join().unwrap();
    assert!(rt.stats().interrupts >= 1);
}

#[test]
fn threads_that_run_no_task_pass_probes() {
    let rt = runtime("round-robin:quantum=5us");
    pass_probes();
    std::thread::spawn(pass_probes).join().unwrap();
    // A thread of its own inherits its worker's GS from a task, and runs none.
    rt.run(|| std::thread::spawn(pass_probes).join().unwrap());
    rt.run(|| spawn(pass_probes).join().unwrap());
}

#[test]
fn the_child_of_a_fork_goes_on_alone() {
    let rt = runtime("round-robin:quantum=5us");
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, parent) = (stop.clone(), std::process::id());
    let other = rt.spawn(move || {
        probe_until(|| {
            if std::process::id() != parent {
                // SAFETY: ends the child, in which this task has no business.
                unsafe { libc::_exit(9) };
            }
            seen.load(Ordering::Relaxed)
        });
    });
    rt.run(|| {
        for _ in 0..20 {
            // SAFETY: the child passes probes and ends.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    (0..100).for_each(|_| pass_probes());
                    libc::_exit(7);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
            }
        }
    });
    stop.store(true, Ordering::Relaxed);
    other.join().unwrap();
}

#[test]
fn a_policy_that_preempts_at_once_is_heard_at_the_next_probe() {
    let rt = runtime("priority:quantum=none,check=1s");
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let probe = move || probe_until(|| seen.load(Ordering::Relaxed));
    let long = rt.run(|| Builder::new().class(Class::BE).spawn(probe).unwrap());
    wait_until(|| rt.stats().switches >= 2);
    rt.spawn(move || stop.store(true, Ordering::Relaxed)).join().unwrap();
    long.join().unwrap();
    assert!(rt.stats().preemptions >= 1);
}
