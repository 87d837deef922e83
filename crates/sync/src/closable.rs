//! A value that many threads use and one closes while others may still be using it.
//!
//! ```text
//! word:   uses under way (31 bits) | CLOSED
//! enter:  CLOSED ? refused : uses + 1
//! leave:  uses - 1; drops the value if that leaves CLOSED alone
//! close:  sets CLOSED; drops the value if that leaves CLOSED alone
//! ```
//!
//! Once CLOSED is set no use begins, so the number of uses only falls, and it reaches zero in one place: in `close` if
//! no use was under way, else in the last `leave`. So the value is dropped once, and never while in use.

use super::atomic::{AtomicU32, Ordering};
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;

const CLOSED: u32 = 1;
const USE: u32 = 2;

/// See the module docs.
pub struct Closable<T> {
    word: AtomicU32,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: uses share the value; the thread that drops it is alone with it (see the module's text).
unsafe impl<T: Send + Sync> Sync for Closable<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Closable<T> {}

impl<T> Closable<T> {
    /// Returns an open value.
    pub fn new(value: T) -> Closable<T> {
        Closable { word: AtomicU32::new(0), value: UnsafeCell::new(ManuallyDrop::new(value)) }
    }

    /// Runs `f` on the value, unless it was closed. `f` must not panic: that would leave the value open forever.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let enter = |word: u32| (word & CLOSED == 0).then_some(word + USE);
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).ok()?;
        // SAFETY: this use is counted, so the value is not dropped.
        let result = f(unsafe { &*self.value.get() });
        if self.word.fetch_sub(USE, Ordering::AcqRel) == CLOSED | USE {
            self.drop_value();
        }
        Some(result)
    }

    /// Drops the value at the end of the last use. Closing twice has no further effect.
    pub fn close(&self) {
        if self.word.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
            self.drop_value();
        }
    }

    fn drop_value(&self) {
        // SAFETY: called once, after the last use (see the module's text).
        unsafe { ManuallyDrop::drop(&mut *self.value.get()) };
    }
}

impl<T> Drop for Closable<T> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_closed_value_is_gone_and_refused() {
        let inner = Arc::new(());
        let value = Closable::new(inner.clone());
        value.with(|_| value.close());
        assert_eq!(Arc::strong_count(&inner), 1, "dropped at the end of the use");
        assert!(value.with(|_| ()).is_none());
        value.close();
        drop(value);
        let open = Closable::new(inner.clone());
        assert_eq!(open.with(Arc::strong_count), Some(2));
        drop(open);
        assert_eq!(Arc::strong_count(&inner), 1, "dropped with its holder");
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    /// Counts drops, which write to it: an overlapping use sees the wrong number.
    struct Watched(Arc<AtomicU32>);

    impl Drop for Watched {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_value_is_dropped_once_and_never_in_use() {
        loom::model(|| {
            let drops = Arc::new(AtomicU32::new(0));
            let shared = Arc::new(Closable::new(Watched(drops.clone())));
            let check = |watched: &Watched| assert_eq!(watched.0.load(Ordering::Relaxed), 0);
            let (user, closer) = (shared.clone(), shared.clone());
            let user = loom::thread::spawn(move || user.with(check));
            let closer = loom::thread::spawn(move || closer.close());
            shared.with(check);
            shared.close();
            user.join().unwrap();
            closer.join().unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), 1);
        });
    }
}
