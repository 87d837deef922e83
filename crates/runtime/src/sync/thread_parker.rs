//! Where an ordinary thread sleeps that waits for a task.
//!
//! A task that ends wakes who waits for it, and that is done in a worker's loop, which must not free memory
//! ([`crate::threads`]): as the handles of the standard library's threads would. So parkers are never freed. A thread gives its own
//! back when it ends, and another one takes it; a wake that comes late then wakes the wrong one, which looks what it
//! waits for and sleeps again.

use heddle_core::Ns;
use heddle_sys::sync::park::FutexWord;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

/// See the module.
#[repr(align(64))]
pub(crate) struct ThreadParker {
    /// 1 after a wake that nobody has slept for.
    woken: FutexWord,
    /// The next of those that no thread has; under the lock of [`FREE`].
    next: Cell<Option<&'static ThreadParker>>,
}

// SAFETY: `next` is used under the lock only.
unsafe impl Sync for ThreadParker {}

/// The first of those that no thread has.
static FREE: Mutex<Option<&'static ThreadParker>> = Mutex::new(None);

fn free() -> MutexGuard<'static, Option<&'static ThreadParker>> {
    FREE.lock().unwrap_or_else(|e| e.into_inner())
}

thread_local! {
    /// That of the thread, once it has waited.
    static OWN: Cell<Option<&'static ThreadParker>> = const { Cell::new(None) };
    static GIVES_BACK: GivesBack = const { GivesBack };
}

/// Gives the thread's parker back when the thread ends. One that waits even later, in another destructor, keeps another.
struct GivesBack;

impl Drop for GivesBack {
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

    /// That of the calling thread, which is no task.
    pub(crate) fn of_caller() -> &'static ThreadParker {
        OWN.get().unwrap_or_else(|| {
            let own = ThreadParker::take();
            OWN.set(Some(own));
            // Gone already in a thread that ends.
            let _ = GIVES_BACK.try_with(|_| ());
            own
        })
    }

    /// Sleeps until somebody wakes the thread, for `timeout` at most; not at all if that has happened. May return for no
    /// reason.
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
    fn a_wake_that_comes_first_is_not_lost() {
        let own = ThreadParker::of_caller();
        assert!(ptr::eq(own, ThreadParker::of_caller()));
        own.unpark();
        own.park(None);
        own.park(Some(Ns(1)));
    }

    #[test]
    fn a_thread_is_woken_and_another_one_takes_its_parker() {
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
