//! Processes made by tasks: forks, programs, and waiting for their ends.

mod exec;
mod fork;
mod wait;

pub(crate) use fork::register;

use crate::signals;
use heddle_rt::raw;

/// Runs a call of the C library that makes a process and may wait for it: with the calling task's mask in the kernel,
/// and its CPU given to others.
fn around(make: &mut dyn FnMut()) {
    heddle_rt::blocking(|| signals::with_own_mask(make));
}

/// Prepares the runtime's own definitions of such calls.
pub(crate) fn start() {
    raw::hook_makers(around);
}
