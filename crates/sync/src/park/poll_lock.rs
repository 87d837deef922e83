//! One thread polls at a time; the others can see whether it sleeps there.

use crate::SpinLock;
use crate::atomic::{AtomicU32, Ordering, fence};

/// The right to poll. The module docs explain what `attended` is for.
#[derive(Debug, Default)]
pub struct PollLock {
    lock: SpinLock,
    /// 1 while the holder sleeps in the poll, or is about to.
    attended: AtomicU32,
}

impl PollLock {
    /// Runs `poll`, which must not sleep. Returns `None` if another thread polls.
    #[inline]
    pub fn try_poll<R>(&self, poll: impl FnOnce() -> R) -> Option<R> {
        if !self.lock.try_lock() {
            return None;
        }
        let result = poll();
        self.lock.unlock();
        Some(result)
    }

    /// Runs `sleep`, which sleeps in the poll on behalf of all threads. Returns false at once if another thread polls.
    ///
    /// `sleep` reads its timeout after [`PollLock::is_attended`] has become true: a thread that sets an earlier timer
    /// either sees that and rings, or is seen. `wanted` is asked after that, too: a bell that rang before may have
    /// ended the previous holder's poll, and it rings only once. A thread that rings first writes what `wanted` reads.
    pub fn attend(&self, wanted: impl FnOnce() -> bool, sleep: impl FnOnce()) -> bool {
        self.try_poll(|| {
            self.attended.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if wanted() {
                sleep();
            }
            self.attended.store(0, Ordering::Release);
        })
        .is_some()
    }

    /// Returns whether a thread sleeps in the poll, or is about to. The caller has written, before a full fence, what
    /// that thread reads before it sleeps.
    #[inline]
    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst) == 1
    }
}
