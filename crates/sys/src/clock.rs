//! Time.

use heddle_core::Ns;

fn read(clock: libc::clockid_t) -> Ns {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable; a wrong clock id would only fail.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    Ns(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Time since boot without sleep (CLOCK_MONOTONIC); about 25 ns.
pub fn now() -> Ns {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling kernel thread.
pub fn thread_cpu_time() -> Ns {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the kernel thread `tid` of this process; zero once it is gone. A system call, about 0.3 us.
pub fn cpu_time_of(tid: u32) -> Ns {
    // The clock id of a thread: its number inverted, "per thread" (4) and "scheduled time" (2).
    read((!(tid as libc::clockid_t) << 3) | 6)
}

/// CPU time of the process, all threads together.
pub fn process_cpu_time() -> Ns {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Ticks of the time stamp counter in a nanosecond, measured once over a millisecond; good to about a thousandth.
fn tsc_per_ns() -> f64 {
    static RATIO: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *RATIO.get_or_init(|| {
        let stamp = || {
            // SAFETY: the instruction has no effect on memory.
            (now(), unsafe { core::arch::x86_64::_rdtsc() })
        };
        let (start, from) = stamp();
        loop {
            let (end, to) = stamp();
            if end - start >= Ns::from_ms(1) {
                return (to - from) as f64 / (end - start).0 as f64;
            }
        }
    })
}

/// A time in ticks of the time stamp counter.
pub fn ns_to_tsc(ns: Ns) -> u64 {
    (ns.0 as f64 * tsc_per_ns()) as u64
}

/// Ticks of the time stamp counter as a time.
pub fn tsc_to_ns(ticks: u64) -> Ns {
    Ns((ticks as f64 / tsc_per_ns()) as u64)
}
