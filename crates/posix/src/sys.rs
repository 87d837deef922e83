//! System calls by the instruction itself.
//!
//! The C library's wrappers would do as well, but many of their names are ours, and a signal that finds a task in this
//! code may preempt it: it holds no lock.

pub(crate) use heddle_rt::raw::call;

/// Calls [`call`] with as many arguments as there are.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let given: &[usize] = &[$($argument as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(given);
        $crate::sys::call($number, args)
    }};
}
pub(crate) use syscall;

/// Returns the number of the calling kernel thread.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_gettid) as u32 }
}
