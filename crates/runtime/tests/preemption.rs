//! Tasks lose the CPU in the middle of what they do, and notice nothing.

mod common;

use common::{block_preemption, runtime, spin_until, two_workers};
use heddle_rt::{Mechanism, RuntimeBuilder, no_preempt, spawn, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs `work` in several tasks of one worker, which take turns only by preemption, until `times` preemptions have
/// happened, or as many as HEDDLE_TEST_PREEMPTIONS says.
fn preempted<T: Send + 'static>(times: u64, work: fn(u64, &AtomicBool) -> T) -> Vec<T> {
    let wanted = std::env::var("HEDDLE_TEST_PREEMPTIONS").ok();
    let times = wanted.map_or(times, |number| number.parse().unwrap());
    let rt = runtime("round-robin:quantum=20us");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..3)
        .map(|i| {
            let stop = stop.clone();
            rt.spawn(move || work(i, &stop))
        })
        .collect();
    while rt.stats().preemptions < times {
        std::thread::yield_now();
    }
    stop.store(true, Ordering::SeqCst);
    let results = tasks.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(rt.stats().preemptions >= times);
    results
}

#[test]
fn a_task_that_never_yields_is_preempted_and_a_short_one_gets_in() {
    for policy in
        ["round-robin:quantum=100us", "two-queue:quantum=100us", "work-stealing:quantum=100us"]
    {
        let rt = runtime(policy);
        let done = Arc::new(AtomicBool::new(false));
        let (seen, set) = (done.clone(), done.clone());
        let long = rt.spawn(move || spin_until(|| seen.load(Ordering::Relaxed)));
        rt.spawn(move || set.store(true, Ordering::Relaxed)).join().unwrap();
        long.join().unwrap();
        assert!(rt.stats().preemptions >= 1, "{policy}");
    }
}

#[test]
fn a_lone_task_is_not_preempted() {
    let rt = runtime("round-robin:quantum=50us");
    rt.run(|| {
        let start = heddle_rt::now();
        while heddle_rt::now() - start < heddle_rt::Ns::from_ms(30) {}
    });
    let stats = rt.stats();
    assert_eq!(stats.preemptions, 0, "nothing else waited");
    assert!(stats.interrupts < 10, "and nothing interrupts it each quantum: {stats:?}");
}

/// On a virtual machine it takes longer to receive a signal than the shortest quantum lasts.
#[test]
fn the_shortest_quantum_lets_tasks_come_to_their_end() {
    let test = "the_shortest_quantum_lets_tasks_come_to_their_end";
    let body = || {
        let rt = two_workers("round-robin:quantum=10us");
        let tasks: Vec<_> = (0..50)
            .map(|_| rt.spawn(|| (0..30_000).for_each(|_| std::hint::spin_loop())))
            .collect();
        tasks.into_iter().for_each(|t| t.join().unwrap());
    };
    common::alone(test, body, common::assert_success);
}

/// Its end comes before the next one has begun to run, which must run all the same.
#[test]
fn tasks_that_take_turns_get_on_with_the_shortest_quantum() {
    for policy in ["round-robin:quantum=10us", "shinjuku-shenango:quantum=10us"] {
        let rt = runtime(policy);
        let tasks: Vec<_> =
            (0..3).map(|_| rt.spawn(|| (0..2_000).for_each(|_| yield_now()))).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    }
}

#[test]
fn without_a_mechanism_no_task_is_preempted() {
    let rt = RuntimeBuilder::new()
        .policy("round-robin:quantum=50us")
        .mechanism(Mechanism::None)
        .workers(1)
        .build()
        .unwrap();
    let order = Arc::new(AtomicU64::new(0));
    let (a, b) = (order.clone(), order.clone());
    let long = rt.spawn(move || {
        let start = heddle_rt::now();
        while heddle_rt::now() - start < heddle_rt::Ns::from_ms(5) {}
        a.fetch_add(1, Ordering::SeqCst)
    });
    let short = rt.spawn(move || b.fetch_add(1, Ordering::SeqCst));
    assert_eq!((long.join().unwrap(), short.join().unwrap()), (0, 1));
    assert_eq!(rt.stats().preemptions, 0);
}

#[test]
fn no_preempt_holds_it_off_until_the_end() {
    let rt = runtime("round-robin:quantum=20us");
    let turn = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let turn = turn.clone();
            rt.spawn(move || {
                for _ in 0..200 {
                    no_preempt(|| {
                        let mine = turn.fetch_add(1, Ordering::Relaxed) + 1;
                        for _ in 0..20_000 {
                            std::hint::spin_loop();
                        }
                        // The other task would have counted on.
                        assert_eq!(turn.load(Ordering::Relaxed), mine);
                    });
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|t| t.join().unwrap());
    assert!(rt.stats().preemptions > 0, "taken when it was allowed again");
}

#[test]
fn a_task_gives_way_by_itself_where_it_ends_a_section() {
    let rt = runtime("round-robin:quantum=100us");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let stop = stop.clone();
            rt.spawn(move || {
                // On the only worker: nothing interrupts its tasks any more.
                block_preemption();
                while !stop.load(Ordering::Relaxed) {
                    no_preempt(|| (0..1000).for_each(|_| std::hint::spin_loop()));
                }
            })
        })
        .collect();
    // A signal may have come before.
    while rt.stats().preemptions < rt.stats().interrupts + 20 {
        std::thread::yield_now();
    }
    stop.store(true, Ordering::SeqCst);
    tasks.into_iter().for_each(|t| t.join().unwrap());
}

/// A computation whose result depends on every bit of the floating-point state.
fn chaotic(seed: u64, steps: u64) -> f64 {
    let mut x = 0.3 + seed as f64 * 0.1;
    let mut sum = 0.0;
    for _ in 0..steps {
        x = 3.99 * x * (1.0 - x);
        sum += x.sqrt();
    }
    sum
}

#[test]
fn a_floating_point_computation_is_bit_exact_over_100_000_preemptions() {
    let results = preempted(100_000, |seed, stop| {
        let expected = chaotic(seed, 10_000);
        let mut rounds = 0u64;
        while !stop.load(Ordering::Relaxed) {
            assert_eq!(chaotic(seed, 10_000).to_bits(), expected.to_bits());
            rounds += 1;
        }
        rounds
    });
    assert!(results.iter().all(|&rounds| rounds > 0));
}

#[test]
fn rounding_modes_stay_with_their_task() {
    preempted(2_000, |seed, stop| {
        let control = 0x1f80 | (seed as u32 % 4) << 13;
        let mut seen = 0u32;
        // SAFETY: changes the rounding mode only, and puts it back.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &control) };
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: stores a register.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut seen) };
            assert_eq!(seen & 0x6000, control & 0x6000);
        }
        let default = 0x1f80u32;
        // SAFETY: as above.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &default) };
    });
}

/// Fills registers with a pattern of the task's own in one block of assembly, spins in it, and checks that they still
/// hold it: nothing between fill and check could restore them but the preemption itself.
macro_rules! registers_survive {
    ($name:ident, $feature:expr, $check:expr) => {
        #[test]
        fn $name() {
            if !$feature {
                println!("this processor has no such registers");
                return;
            }
            preempted(2_000, |seed, stop| {
                let check: unsafe fn(u64) -> bool = $check;
                while !stop.load(Ordering::Relaxed) {
                    // SAFETY: the feature was checked; all registers used are declared.
                    assert!(unsafe { check(0x1111_1111_1111_1111 * (seed + 1)) });
                }
            });
        }
    };
}

registers_survive!(general_registers_survive, true, |pattern| {
    let wrong: u64;
    // SAFETY: uses declared registers only.
    unsafe {
        std::arch::asm!(
            "mov r8, {p}", "mov r9, {p}", "mov r10, {p}", "mov r11, {p}", "mov r12, {p}", "mov r13, {p}",
            "mov rsi, {p}", "mov rdi, {p}", "mov ecx, 20000",
            "2:", "dec ecx", "jnz 2b",
            "xor {w:e}, {w:e}",
            "xor r8, {p}", "or {w}, r8", "xor r9, {p}", "or {w}, r9", "xor r10, {p}", "or {w}, r10",
            "xor r11, {p}", "or {w}, r11", "xor r12, {p}", "or {w}, r12", "xor r13, {p}", "or {w}, r13",
            "xor rsi, {p}", "or {w}, rsi", "xor rdi, {p}", "or {w}, rdi",
            p = in(reg) pattern, w = out(reg) wrong,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _,
            out("rsi") _, out("rdi") _, out("rcx") _,
        );
    }
    wrong == 0
});

registers_survive!(flags_survive, true, |pattern| {
    // Carry, parity, adjust, zero, sign and overflow, each task others.
    let wanted = pattern & 0x8d5;
    let seen: u64;
    // SAFETY: these flags belong to the block; the loop changes none of them.
    unsafe {
        std::arch::asm!(
            "mov ecx, 20000", "push {w}", "popfq",
            "2:", "lea ecx, [ecx - 1]", "jecxz 3f", "jmp 2b",
            "3:", "pushfq", "pop {s}",
            w = in(reg) wanted | 0x202, s = out(reg) seen, out("rcx") _,
        );
    }
    seen & 0x8d5 == wanted
});

registers_survive!(errno_survives, true, |pattern| {
    // SAFETY: the calling task's own variable.
    unsafe {
        let errno = libc::__errno_location();
        *errno = pattern as i32;
        (0..20_000).for_each(|_| std::hint::spin_loop());
        *errno == pattern as i32
    }
});

registers_survive!(sse_registers_survive, true, |pattern| {
    let mut out = [[0u64; 2]; 16];
    // SAFETY: writes 256 bytes to `out`.
    unsafe {
        std::arch::asm!(
            "movq xmm0, {p}", "punpcklqdq xmm0, xmm0",
            "movaps xmm1, xmm0", "movaps xmm7, xmm0", "movaps xmm8, xmm0", "movaps xmm15, xmm0",
            "mov ecx, 20000", "2:", "dec ecx", "jnz 2b",
            "movups [{o}], xmm0", "movups [{o} + 16], xmm1", "movups [{o} + 32], xmm7",
            "movups [{o} + 48], xmm8", "movups [{o} + 64], xmm15",
            p = in(reg) pattern, o = in(reg) out.as_mut_ptr(),
            out("xmm0") _, out("xmm1") _, out("xmm7") _, out("xmm8") _, out("xmm15") _, out("rcx") _,
        );
    }
    out[..5].iter().flatten().all(|&w| w == pattern)
});

registers_survive!(avx_registers_survive, std::is_x86_feature_detected!("avx2"), |pattern| {
    let mut out = [[0u64; 4]; 3];
    // SAFETY: the feature was checked; writes 96 bytes to `out`.
    unsafe {
        std::arch::asm!(
            "vmovq xmm0, {p}", "vpbroadcastq ymm0, xmm0", "vmovaps ymm7, ymm0", "vmovaps ymm15, ymm0",
            "mov ecx, 20000", "2:", "dec ecx", "jnz 2b",
            "vmovups [{o}], ymm0", "vmovups [{o} + 32], ymm7", "vmovups [{o} + 64], ymm15", "vzeroupper",
            p = in(reg) pattern, o = in(reg) out.as_mut_ptr(),
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _,
            out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _,
            out("xmm13") _, out("xmm14") _, out("xmm15") _, out("rcx") _,
        );
    }
    out.iter().flatten().all(|&w| w == pattern)
});

registers_survive!(avx512_registers_survive, std::is_x86_feature_detected!("avx512f"), |pattern| {
    let mut out = [[0u64; 8]; 3];
    let mask: u64;
    // SAFETY: the feature was checked; writes 192 bytes to `out`.
    unsafe {
        std::arch::asm!(
            "vpbroadcastq zmm1, {p}", "vmovaps zmm16, zmm1", "vmovaps zmm31, zmm1", "kmovw k3, {p:e}",
            "mov ecx, 20000", "2:", "dec ecx", "jnz 2b",
            "vmovups [{o}], zmm1", "vmovups [{o} + 64], zmm16", "vmovups [{o} + 128], zmm31",
            "kmovw {m:e}, k3", "vzeroupper",
            p = in(reg) pattern, o = in(reg) out.as_mut_ptr(), m = out(reg) mask,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _,
            out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _,
            out("xmm13") _, out("xmm14") _, out("xmm15") _, out("xmm16") _, out("xmm31") _, out("k3") _, out("rcx") _,
        );
    }
    mask == pattern & 0xffff && out.iter().flatten().all(|&w| w == pattern)
});

#[test]
fn x87_registers_survive() {
    preempted(2_000, |seed, stop| {
        let value = 1.5f64 + seed as f64;
        let mut back = 0f64;
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: one value goes onto the x87 stack and off again.
            unsafe {
                std::arch::asm!(
                    "fld qword ptr [{v}]", "mov ecx, 20000", "2:", "dec ecx", "jnz 2b", "fstp qword ptr [{b}]",
                    v = in(reg) &value, b = in(reg) &mut back, out("rcx") _,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                );
            }
            assert_eq!(back.to_bits(), value.to_bits());
        }
    });
}

#[test]
fn malloc_and_preemption_get_along() {
    preempted(5_000, |seed, stop| {
        let mut kept: Vec<Vec<u64>> = vec![];
        let mut i = 0;
        while !stop.load(Ordering::Relaxed) {
            i += 1;
            kept.push(vec![seed; 1 + i % 300]);
            if kept.len() > 64 {
                let old = kept.swap_remove(i % 64);
                assert!(old.iter().all(|&w| w == seed));
            }
        }
    });
}

#[test]
fn other_signals_nest_with_preemption() {
    static HITS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn count(_: i32) {
        HITS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGUSR1, count as *const () as usize) };
    preempted(3_000, |seed, stop| {
        let mut rounds = 0u64;
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: a handler is installed.
            unsafe { libc::raise(libc::SIGUSR1) };
            assert_eq!(chaotic(seed, 200).to_bits(), chaotic(seed, 200).to_bits());
            rounds += 1;
        }
        rounds
    });
    assert!(HITS.load(Ordering::Relaxed) > 0);
}

#[test]
fn preempted_tasks_move_between_workers() {
    let rt = two_workers("work-stealing:quantum=50us");
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..6u64)
        .map(|seed| {
            let stop = stop.clone();
            rt.spawn(move || {
                let expected = chaotic(seed, 5_000);
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(chaotic(seed, 5_000).to_bits(), expected.to_bits());
                    yield_now();
                    spawn(|| ()).join().unwrap();
                }
            })
        })
        .collect();
    while rt.stats().preemptions < 2_000 {
        std::thread::yield_now();
    }
    stop.store(true, Ordering::SeqCst);
    tasks.into_iter().for_each(|t| t.join().unwrap());
}
