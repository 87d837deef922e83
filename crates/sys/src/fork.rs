//! Whether the process was forked: a child has its parent's descriptors and none of its threads.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many times this process is the child of a fork since somebody asked first.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// Names the process: another number in the child of a fork. A load, where `getpid` is a system call.
///
/// A child that was made by the bare system call, past the C library, is not told from its parent.
pub fn generation() -> u32 {
    if !WATCH.is_completed() {
        WATCH.call_once(|| {
            // SAFETY: the handler touches an atomic alone, which a child may do whatever other threads were doing.
            let result = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert_eq!(result, 0, "no memory for a handler");
        });
    }
    FORKS.load(Relaxed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_child_has_another_name() {
        let here = super::generation();
        // SAFETY: the child does nothing but read an atomic and leave.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_other = super::generation() != here;
            // SAFETY: ends the child without running what is the parent's.
            unsafe { libc::_exit(if is_other { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was just made.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((libc::WEXITSTATUS(status), super::generation()), (7, here));
    }
}
