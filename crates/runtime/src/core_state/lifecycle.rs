//! How a runtime ends, and how many of its threads have ended.
//!
//! ```text
//! Running --drop, shutdown--> Draining --tasks do not come to rest in time--> Over
//! ```

use crate::kernel_thread::Ending;
use heddle_sys::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What workers do with queued tasks. Phases only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    /// Run them and wait for more.
    Running,
    /// Run them and end once nothing is queued.
    Draining,
    /// End at the next scheduling point.
    Over,
}

/// See the module.
pub(crate) struct Lifecycle {
    /// A [`Phase`].
    phase: AtomicU32,
    /// Kernel threads started and ended, including the ticker.
    started: AtomicU32,
    ended: AtomicU32,
    pub(crate) ending: Ending,
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        Lifecycle {
            phase: AtomicU32::new(Phase::Running as u32),
            started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            ending: Ending::default(),
        }
    }
}

impl Lifecycle {
    /// Returns whether workers are to end, now or once nothing is queued: they no longer wait for work.
    pub(super) fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= Phase::Draining as u32
    }

    /// Returns whether workers are to end at their next scheduling point, whatever is queued.
    pub(super) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Over as u32
    }

    pub(super) fn begin_draining(&self) {
        self.advance(Phase::Draining);
    }

    pub(super) fn end(&self) {
        self.advance(Phase::Over);
    }

    fn advance(&self, to: Phase) {
        let from = self.phase.swap(to as u32, Ordering::SeqCst);
        debug_assert!(from <= to as u32, "phases only advance");
    }

    /// Returns the number of threads started, which is the index of the next one.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }

    /// Counts a kernel thread that starts.
    pub(crate) fn thread_starts(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a kernel thread that has ended.
    pub(crate) fn thread_ended(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        futex::wake(&self.ended, u32::MAX >> 1);
    }

    /// Waits at most `limit` for all threads to end. Returns whether they have.
    pub(crate) fn await_threads(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.ended.load(Ordering::Acquire);
            if ended >= self.started.load(Ordering::Acquire) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            futex::wait(&self.ended, ended, Some(left.into()));
        }
    }
}
