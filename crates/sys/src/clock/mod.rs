//! Time: the system's, or under `--cfg virtual_time` a counter that only the program advances.
//!
//! With the counter a run is repeatable to the nanosecond: the scheduler's decisions are then a function of the
//! workload alone. Only `scripts/test-virtual` builds it this way; an ordinary build has no trace of it.

#[cfg(not(virtual_time))]
mod system;
#[cfg(virtual_time)]
mod virtual_time;

#[cfg(not(virtual_time))]
pub use system::{is_steady, now, ns_to_ticks, ticks, ticks_to_ns};
#[cfg(virtual_time)]
pub use virtual_time::{advance_to, is_steady, now, ns_to_ticks, restart, ticks, ticks_to_ns};

use heddle_core::Ns;

/// Returns the time by one of the system's clocks; about 25 ns.
fn read(clock: libc::clockid_t) -> Ns {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is writable; a wrong clock id would only fail.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    Ns(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Reads a kernel thread's clock, by the system call: `clock_gettime` may be a thread library's (`heddle-posix`), whose
/// threads are tasks.
fn read_thread(clock: libc::clockid_t) -> Ns {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as in `read`.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut ts) };
    Ns(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Returns the CPU time of the calling kernel thread.
pub fn thread_cpu_time() -> Ns {
    read_thread(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of the kernel thread `tid` of this process; zero once it is gone. A system call, about 0.3 us.
pub fn cpu_time_of(tid: u32) -> Ns {
    // A thread's clock id: its thread id inverted, "per thread" (4) and "scheduled time" (2).
    read_thread((!(tid as libc::clockid_t) << 3) | 6)
}

/// Returns the CPU time of any process, all threads together; zero once it is gone.
pub fn process_cpu_time_of(pid: u32) -> Ns {
    // As above, without "per thread".
    read((!(pid as libc::clockid_t) << 3) | 2)
}

/// Returns the CPU time of the process, all threads together.
pub fn process_cpu_time() -> Ns {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}
