//! Kernel-level locks that block worker after worker.
//!
//! If a task is preempted while it holds such a lock, others wait for it in the kernel, each blocking a worker. The
//! ticker gives their CPUs to other workers until the task has run again, so no task waits forever. But each such wait
//! costs a millisecond and a kernel thread, and usually the lock belongs to an allocator that the runtime does not
//! know. The process reports this once. A holder whose kernel thread waits for a CPU, on a busy machine, looks the
//! same.

use crate::report;
use heddle_sys::thread;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of workers in a row that must lose their CPUs to the same lock before the process reports it.
const MANY: u32 = 64;

/// The lock that blocked the worker which lost its CPU last.
#[derive(Debug, Default)]
pub(crate) struct HeldUp {
    word: usize,
    times: u32,
}

impl HeldUp {
    /// The worker on the kernel thread `tid` has lost its CPU because it sleeps.
    pub(crate) fn lost(&mut self, tid: u32) {
        static SAID: AtomicBool = AtomicBool::new(false);
        let Some(word) = thread::awaited_futex(tid) else { return };
        if self.is_held_up_by(word) && !SAID.swap(true, Ordering::Relaxed) {
            say(word);
        }
    }

    /// Returns whether enough workers in a row have waited for the lock at `word` to report it.
    fn is_held_up_by(&mut self, word: usize) -> bool {
        self.times = if word == self.word { self.times + 1 } else { 1 };
        self.word = word;
        self.times == MANY
    }
}

fn say(word: usize) {
    report::say(format_args!(
        "heddle: {MANY} workers in a row had to be replaced because they waited in the kernel for the same lock, \
         at {word:#x}; its holder is preempted, sleeps, or waits for a CPU. \
         Each wait costs a millisecond and a kernel thread. An allocator's lock? \
         Wrap the allocator in heddle_rt::alloc::NoPreempt, or name its code: RuntimeBuilder::no_preempt_code, \
         HEDDLE_NO_PREEMPT_CODE. One of your own? Hold it in heddle_rt::no_preempt, or use those of heddle_rt::sync."
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_lock_in_a_row_counts_and_only_once() {
        let mut held_up = HeldUp::default();
        assert!((1..MANY).all(|_| !held_up.is_held_up_by(64)));
        assert!(!held_up.is_held_up_by(128));
        assert!((1..MANY).all(|_| !held_up.is_held_up_by(64)));
        assert!(held_up.is_held_up_by(64));
        assert!(!held_up.is_held_up_by(64));
    }
}
