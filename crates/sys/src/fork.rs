//! Detects forks: a child has its parent's descriptors, but none of its threads.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of forks between this process and the first one to ask.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn count() {
    FORKS.fetch_add(1, Relaxed);
}

/// Returns a number that identifies the process and changes in the child of a fork. A load, while `getpid` is a system
/// call.
///
/// A child created by the bare system call, past the C library, is not distinguished from its parent.
pub fn generation() -> u32 {
    if !WATCH.is_completed() {
        WATCH.call_once(|| {
            // SAFETY: the handler only accesses an atomic, which a child may do whatever other threads were doing.
            let result = unsafe { libc::pthread_atfork(None, None, Some(count)) };
            assert_eq!(result, 0, "out of memory for a fork handler");
        });
    }
    FORKS.load(Relaxed)
}

/// Hides descriptors numbered `first` and above from the programs that this process starts, whatever opened them.
///
/// # Errors
/// `ENOSYS` and `EINVAL` from kernels before 5.11.
pub fn close_on_exec_from(first: i32) -> std::io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: takes numbers, and closes nothing now.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Forks and runs `work` in the child, which then exits without running any of the parent's cleanup. Returns whether
/// `work` returned true. For tests of what children may do: a lock that another thread held stays locked in the child,
/// so the child ends itself after half a minute.
#[doc(hidden)]
pub fn in_child(work: impl FnOnce() -> bool) -> std::io::Result<bool> {
    // SAFETY: the child has copies of everything that `work` refers to, ends here, and cannot change the parent's
    // memory.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(std::io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: takes a number. Without a handler, the alarm ends the child.
        unsafe { libc::alarm(30) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if done { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    Ok(waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_generation() {
        let here = generation();
        assert!(in_child(|| generation() != here).unwrap());
        assert!(!in_child(|| generation() == here).unwrap());
        assert_eq!(generation(), here);
    }
}
