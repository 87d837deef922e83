//! The words under the locks: which transitions each allows, apart from how a thread waits. Waiting is up to
//! [`super::WaitList`]: a caller that may not proceed joins the list while the word still forbids it, and the thread
//! that changes the word wakes from the list.

use super::atomic::{AtomicU32, Ordering};

/// The word of a mutex: free, held, or held while a task may be waiting.
#[derive(Debug)]
pub struct LockWord(AtomicU32);

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

impl Default for LockWord {
    fn default() -> Self {
        LockWord::new()
    }
}

impl LockWord {
    /// Returns a free word.
    #[cfg(not(loom))]
    pub const fn new() -> LockWord {
        LockWord(AtomicU32::new(FREE))
    }

    /// Returns a free word.
    #[cfg(loom)]
    pub fn new() -> LockWord {
        LockWord(AtomicU32::new(FREE))
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it if it is free, and marks it as contended in any case: a task that has waited cannot know whether others
    /// still do. On failure, wait while [`LockWord::is_contended`].
    #[inline]
    pub fn contend(&self) -> bool {
        self.0.swap(CONTENDED, Ordering::Acquire) == FREE
    }

    /// Releases it. Returns true if one waiter must be woken.
    #[inline]
    #[must_use]
    pub fn unlock(&self) -> bool {
        self.0.swap(FREE, Ordering::Release) == CONTENDED
    }

    /// Returns whether it is held and a task may be waiting.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CONTENDED
    }

    /// Returns whether it is held.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != FREE
    }
}

/// The words of a reader-writer lock. Waiting writers hold new readers back, so they are not starved.
#[derive(Debug)]
pub struct RwWord {
    /// [`WRITER`], or the number of readers inside.
    state: AtomicU32,
    writers_waiting: AtomicU32,
}

const WRITER: u32 = u32::MAX;

impl Default for RwWord {
    fn default() -> Self {
        RwWord::new()
    }
}

impl RwWord {
    /// Returns a free lock.
    #[cfg(not(loom))]
    pub const fn new() -> RwWord {
        RwWord { state: AtomicU32::new(0), writers_waiting: AtomicU32::new(0) }
    }

    /// Returns a free lock.
    #[cfg(loom)]
    pub fn new() -> RwWord {
        RwWord { state: AtomicU32::new(0), writers_waiting: AtomicU32::new(0) }
    }

    /// Admits a reader, unless a writer holds the lock or waits.
    pub fn try_read(&self) -> bool {
        let join = |s: u32| (s < WRITER - 1).then(|| s + 1);
        self.writers_waiting.load(Ordering::SeqCst) == 0
            && self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok()
    }

    /// Returns whether a reader must wait.
    pub fn bars_readers(&self) -> bool {
        self.state.load(Ordering::SeqCst) == WRITER
            || self.writers_waiting.load(Ordering::SeqCst) != 0
    }

    /// Removes a reader. Returns true if all waiters must be woken.
    #[must_use]
    pub fn end_read(&self) -> bool {
        self.state.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Admits a writer if the lock is free.
    pub fn try_write(&self) -> bool {
        self.state.compare_exchange(0, WRITER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Registers a waiting writer: new readers are held back.
    pub fn writer_waits(&self) {
        self.writers_waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Called when a writer that waited holds the lock.
    pub fn writer_came(&self) {
        self.writers_waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether a writer must wait.
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::SeqCst) != 0
    }

    /// Removes the writer. All waiters must be woken.
    pub fn end_write(&self) {
        self.state.store(0, Ordering::SeqCst);
    }
}

/// Whether a descriptor may be ready: bit 0, plus 2 for every report. An operation that found it not ready clears the
/// bit only if no report arrived since it looked, so no edge is lost.
#[derive(Debug)]
pub struct ReadyWord(AtomicU32);

impl Default for ReadyWord {
    fn default() -> Self {
        ReadyWord(AtomicU32::new(0))
    }
}

impl ReadyWord {
    /// Read this before trying the operation.
    #[inline]
    pub fn look(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Records that the operation found nothing; `seen` is the earlier result of [`ReadyWord::look`].
    #[inline]
    pub fn found_nothing(&self, seen: u32) {
        let _ = self.0.compare_exchange(seen, seen & !1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns whether an operation is worth trying. Wait while it is not.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.look() & 1 == 1
    }

    /// Records that the system reported readiness. The caller must wake a waiter.
    pub fn report(&self) {
        let bump = |s: u32| Some(s.wrapping_add(2) | 1);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, bump);
    }
}
