//! How a runtime ends, and which of its threads have.
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
    /// They run them, and wait for more.
    Running,
    /// They run them, and end once nothing is queued.
    Draining,
    /// They end at their next scheduling point.
    Over,
}

/// See the module.
pub(crate) struct Lifecycle {
    /// A [`Phase`].
    phase: AtomicU32,
    /// Kernel threads that were started, and those that have ended; the ticker included.
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
    /// Whether workers are to end, now or once nothing is queued: no new work is waited for.
    pub(super) fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= Phase::Draining as u32
    }

    /// Whether workers are to end at their next scheduling point, whatever is queued.
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
        debug_assert!(from <= to as u32, "a runtime that is over does not run again");
    }

    /// How many threads were started; the number of the next one.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }

    /// A kernel thread of the runtime starts.
    pub(crate) fn thread_starts(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// A kernel thread of the runtime ends.
    pub(crate) fn thread_ended(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        futex::wake(&self.ended, u32::MAX >> 1);
    }

    /// Waits until all threads have ended, for at most `limit`; whether they have.
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
