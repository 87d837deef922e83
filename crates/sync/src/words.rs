//! The words under the locks: what may happen to each, apart from how one waits. Waiting is [`super::WaitList`]'s: a
//! caller that may not go on joins the list while the word still forbids it, and the thread that changes the word
//! wakes from the list.

use super::atomic::{AtomicU32, Ordering};

/// The word of a mutex: free, held, or held while a task may wait.
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
    /// Free.
    #[cfg(not(loom))]
    pub const fn new() -> LockWord {
        LockWord(AtomicU32::new(FREE))
    }

    /// Free.
    #[cfg(loom)]
    pub fn new() -> LockWord {
        LockWord(AtomicU32::new(FREE))
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it if it is free, and marks it as contended in any case: a task that has waited cannot know whether
    /// others still do. If this failed, wait while [`LockWord::is_contended`].
    #[inline]
    pub fn contend(&self) -> bool {
        self.0.swap(CONTENDED, Ordering::Acquire) == FREE
    }

    /// Releases it; true if one waiter must be woken.
    #[inline]
    #[must_use]
    pub fn unlock(&self) -> bool {
        self.0.swap(FREE, Ordering::Release) == CONTENDED
    }

    /// Whether it is held and a task may wait.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CONTENDED
    }

    /// Whether it is held.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != FREE
    }
}

/// The words of a reader-writer lock. Writers that wait hold new readers back, so that they are not starved.
#[derive(Debug)]
pub struct RwWord {
    /// [`WRITER`], or how many readers are in.
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
    /// Free.
    #[cfg(not(loom))]
    pub const fn new() -> RwWord {
        RwWord { state: AtomicU32::new(0), writers_waiting: AtomicU32::new(0) }
    }

    /// Free.
    #[cfg(loom)]
    pub fn new() -> RwWord {
        RwWord { state: AtomicU32::new(0), writers_waiting: AtomicU32::new(0) }
    }

    /// Lets a reader in, unless a writer is in or waits.
    pub fn try_read(&self) -> bool {
        let join = |s: u32| (s < WRITER - 1).then(|| s + 1);
        self.writers_waiting.load(Ordering::SeqCst) == 0
            && self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok()
    }

    /// Whether a reader must wait.
    pub fn bars_readers(&self) -> bool {
        self.state.load(Ordering::SeqCst) == WRITER
            || self.writers_waiting.load(Ordering::SeqCst) != 0
    }

    /// A reader leaves; true if all waiters have to be woken.
    #[must_use]
    pub fn end_read(&self) -> bool {
        self.state.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Lets a writer in if the lock is free.
    pub fn try_write(&self) -> bool {
        self.state.compare_exchange(0, WRITER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// A writer begins to wait: new readers are held back.
    pub fn writer_waits(&self) {
        self.writers_waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A writer that waited is in.
    pub fn writer_came(&self) {
        self.writers_waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a writer must wait.
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::SeqCst) != 0
    }

    /// The writer leaves. All waiters have to be woken.
    pub fn end_write(&self) {
        self.state.store(0, Ordering::SeqCst);
    }
}

/// Whether a descriptor may be ready: bit 0, plus 2 for every report. An operation that found it not ready clears the
/// bit only if no report came since it looked, so no edge is lost.
#[derive(Debug)]
pub struct ReadyWord(AtomicU32);

impl Default for ReadyWord {
    fn default() -> Self {
        ReadyWord(AtomicU32::new(0))
    }
}

impl ReadyWord {
    /// To be read before the operation is tried.
    #[inline]
    pub fn look(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// The operation found nothing; `seen` is what [`ReadyWord::look`] said before.
    #[inline]
    pub fn found_nothing(&self, seen: u32) {
        let _ = self.0.compare_exchange(seen, seen & !1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether an operation is worth a try. Wait while not.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.look() & 1 == 1
    }

    /// The system reported readiness. The caller must wake a waiter.
    pub fn report(&self) {
        let bump = |s: u32| Some(s.wrapping_add(2) | 1);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, bump);
    }
}
