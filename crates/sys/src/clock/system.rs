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
