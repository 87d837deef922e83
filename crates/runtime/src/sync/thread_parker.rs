//! How an ordinary thread parks while it waits for a task.
//!
//! The end of a task wakes its joiner from a worker's loop, which must not free memory ([`crate::threads`]), as the
//! handles of the standard library's threads would. So parkers are never freed. A thread returns its parker when it
//! ends, and another thread takes it; a late wake-up then reaches the wrong thread, which checks its condition and
//! parks again.

use heddle_core::Ns;
use heddle_sync::park::FutexWord;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

/// See the module.
#[repr(align(64))]
pub(crate) struct ThreadParker {
    /// 1 after a wake-up that no park has consumed.
    woken: FutexWord,
    /// The next free parker; under the lock of [`FREE`].
    next: Cell<Option<&'static ThreadParker>>,
}

// SAFETY: `next` is used under the lock only.
unsafe impl Sync for ThreadParker {}

/// The first free parker.
static FREE: Mutex<Option<&'static ThreadParker>> = Mutex::new(None);

/// The list of free parkers, locked.
pub(crate) struct Locked(#[expect(dead_code)] MutexGuard<'static, Option<&'static ThreadParker>>);

/// Takes the lock of the list.
pub(crate) fn lock() -> Locked {
    Locked(free())
}

fn free() -> MutexGuard<'static, Option<&'static ThreadParker>> {
    FREE.lock().unwrap_or_else(|e| e.into_inner())
}

thread_local! {
    /// This thread's parker, once it has waited.
    static OWN: Cell<Option<&'static ThreadParker>> = const { Cell::new(None) };
    static RETURNS: ReturnsParker = const { ReturnsParker };
}

/// Returns the thread's parker when the thread ends. A wait even later, in another destructor, keeps another parker
/// for good.
struct ReturnsParker;

impl Drop for ReturnsParker {
    fn drop(&mut self) {
        if let Some(own) = OWN.take() {
            let mut free = free();
            own.next.set(free.replace(own));
        }
    }
}

impl ThreadParker {
    fn take() -> &'static ThreadParker {
        let mut free = free();
        let Some(first) = *free else {
            drop(free);
            let new = ThreadParker { woken: FutexWord::default(), next: Cell::new(None) };
            return Box::leak(Box::new(new));
        };
        *free = first.next.take();
        first
    }

    /// The parker of the calling thread, which is not a task.
    pub(crate) fn of_caller() -> &'static ThreadParker {
        OWN.get().unwrap_or_else(|| {
            let own = ThreadParker::take();
            OWN.set(Some(own));
            // Already destroyed in a thread that is ending.
            let _ = RETURNS.try_with(|_| ());
            own
        })
    }

    /// Sleeps until the thread is woken, for `timeout` at most; not at all if that has happened. May return spuriously.
    pub(crate) fn park(&self, timeout: Option<Ns>) {
        if self.woken.swap(0) == 0 {
            self.woken.wait(0, timeout);
            self.woken.swap(0);
        }
    }

    /// Ends its [`ThreadParker::park`], or the next one.
    pub(crate) fn unpark(&self) {
        if self.woken.swap(1) == 0 {
            self.woken.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn a_wake_up_before_the_park_is_not_lost() {
        let own = ThreadParker::of_caller();
        assert!(ptr::eq(own, ThreadParker::of_caller()));
        own.unpark();
        own.park(None);
        own.park(Some(Ns(1)));
    }

    #[test]
    fn a_parker_is_reused_after_its_thread_has_ended() {
        let sleeps = || {
            let (say, hear) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                let own = ThreadParker::of_caller();
                say.send(own).unwrap();
                own.park(None);
            });
            let parker = hear.recv().unwrap();
            parker.unpark();
            thread.join().unwrap();
            parker
        };
        let first = sleeps();
        // Other tests take parkers, too.
        while !ptr::eq(first, sleeps()) {}
    }
}
