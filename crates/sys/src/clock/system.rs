//! The system's clock and the processor's time stamp counter.

use super::read;
use core::arch::x86_64::_rdtsc;
use heddle_core::Ns;

/// Returns the time since boot without sleep (CLOCK_MONOTONIC); about 25 ns.
pub fn now() -> Ns {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the time stamp counter; 10 to 20 ns on a virtual machine.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: the instruction is part of x86-64 and has no effect on memory.
    unsafe { _rdtsc() }
}

/// Returns whether the time stamp counter passes at the same rate on all CPUs, and while they sleep (invariant TSC).
pub fn is_steady() -> bool {
    static STEADY: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        const POWER: u32 = 0x8000_0007;
        // SAFETY: x86-64 has the instruction. Some versions of the library declare it safe.
        #[allow(unused_unsafe)]
        let answer = |leaf| unsafe { core::arch::x86_64::__cpuid(leaf) };
        answer(0x8000_0000).eax >= POWER && answer(POWER).edx & 1 << 8 != 0
    });
    *STEADY
}

/// Returns the time stamp counter's ticks per nanosecond, measured once over a millisecond; accurate to about 0.1 %.
fn ticks_per_ns() -> f64 {
    static RATIO: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *RATIO.get_or_init(|| {
        let stamp = || (now(), ticks());
        let (start, from) = stamp();
        loop {
            let (end, to) = stamp();
            if end - start >= Ns::from_ms(1) {
                return (to - from) as f64 / (end - start).0 as f64;
            }
        }
    })
}

/// Converts a time to ticks of the time stamp counter.
pub fn ns_to_ticks(ns: Ns) -> u64 {
    (ns.0 as f64 * ticks_per_ns()) as u64
}

/// Converts ticks of the time stamp counter to a time.
pub fn ticks_to_ns(ticks: u64) -> Ns {
    Ns((ticks as f64 / ticks_per_ns()) as u64)
}
