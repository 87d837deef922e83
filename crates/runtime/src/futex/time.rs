//! The times that programs pass, on the runtime's clock.

use heddle_core::Ns;
use heddle_sys::clock;
use libc::{clockid_t, timespec};
use std::ffi::c_int;

/// Converts a span of time. Returns `None` if the nanoseconds are out of range or the span is negative.
pub fn span(time: &timespec) -> Option<Ns> {
    let nanos = u64::try_from(time.tv_nsec).ok().filter(|&ns| ns < 1_000_000_000)?;
    let secs = u64::try_from(time.tv_sec).ok()?;
    Some(Ns(secs.saturating_mul(1_000_000_000).saturating_add(nanos)))
}

/// Returns when `time` on `clock` will be, on the runtime's clock; `Ns::ZERO` if it has passed. A change of the
/// system's time after that is not noticed.
///
/// # Errors
/// EINVAL: the nanoseconds are out of range, or the clock is neither the real-time nor the monotonic one.
pub fn deadline(clock: clockid_t, time: &timespec) -> Result<Ns, c_int> {
    if !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    // A time before the epoch has passed.
    let at = span(time).unwrap_or(Ns::ZERO);
    match clock {
        libc::CLOCK_MONOTONIC => Ok(at),
        libc::CLOCK_REALTIME => {
            let left = at.0.saturating_sub(real_time().0);
            Ok(if left == 0 { Ns::ZERO } else { Ns(clock::now().0.saturating_add(left)) })
        }
        _ => Err(libc::EINVAL),
    }
}

fn real_time() -> Ns {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid result.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    span(&time).unwrap_or(Ns::ZERO)
}
