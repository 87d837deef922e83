//! The times that programs pass, on the runtime's clock.

pub(crate) use heddle_rt::raw::{deadline, span};

use heddle_core::Ns;
use libc::timespec;

/// Converts `ns` to the kernel's form.
pub(crate) fn timespec(ns: Ns) -> timespec {
    libc::timespec {
        tv_sec: (ns.0 / 1_000_000_000).min(i64::MAX as u64) as i64,
        tv_nsec: (ns.0 % 1_000_000_000) as i64,
    }
}
