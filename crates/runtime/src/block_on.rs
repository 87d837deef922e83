//! Running a future on the calling task or thread.
//!
//! A waker may be called at any time, also long after its `block_on` has returned, and also where memory must not be
//! freed ([`crate::threads`]). So its data is a [`Signal`], which is never freed: `block_on` takes one and returns it.
//! A late call then reaches another `block_on`, which polls its future once more than it needs to.
//!
//! The signal holds a flag beside the party to wake, because the party's own permit ([`waiter::park`]) may be used up
//! by a wait inside the poll, such as for a mutex.

use crate::carrier::trust;
use crate::preempt::NoPreempt;
use crate::sync::waiter::{self, Waiter};
use heddle_sync::SpinLock;
use std::cell::{Cell, UnsafeCell};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Runs `future` on the calling task or ordinary thread, which waits in between the polls as in any other wait: a task
/// leaves its worker to others. Works with the futures of any library, except those that need a reactor of their own.
///
/// May be nested, and called in a poll: then the polling task or thread waits.
///
/// ```
/// use heddle_rt::sync::oneshot;
///
/// let (answer, question) = oneshot::channel();
/// heddle_rt::spawn(move || answer.send(6 * 7));
/// assert_eq!(heddle_rt::block_on(async { question.await.unwrap() + 1 }), 43);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let signal = InUse::take();
    // SAFETY: the functions of the table are for signals, which are never freed.
    let waker = unsafe { Waker::from_raw(raw(signal.0)) };
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        if signal.0.state.swap(WAITS, Ordering::AcqRel) == WOKEN {
            // It may have woken itself, to yield.
            crate::yield_now();
            continue;
        }
        waiter::park();
        while signal.0.state.swap(WAITS, Ordering::AcqRel) != WOKEN {
            waiter::park();
        }
    }
}

const WAITS: usize = 0;
const WOKEN: usize = 1;

/// What a waker refers to.
struct Signal {
    /// [`WOKEN`] after a wake that no poll has followed.
    state: AtomicUsize,
    /// The party in [`block_on`], as [`Waiter::into_word`] returns it.
    waiter: AtomicUsize,
    /// The next free signal; under the lock of [`FREE`].
    next: Cell<Option<&'static Signal>>,
}

// SAFETY: `next` is used under the lock only.
unsafe impl Sync for Signal {}

/// The signals that are not in use.
struct FreeList {
    lock: SpinLock,
    first: UnsafeCell<Option<&'static Signal>>,
}

// SAFETY: `first` is used under the lock only.
unsafe impl Sync for FreeList {}

static FREE: FreeList = FreeList { lock: SpinLock::new(), first: UnsafeCell::new(None) };

impl FreeList {
    fn with<R>(&self, f: impl FnOnce(&mut Option<&'static Signal>) -> R) -> R {
        let _guard = NoPreempt::new();
        let _locked = lock();
        // SAFETY: the lock is held.
        f(unsafe { &mut *self.first.get() })
    }
}

/// The list of free signals, locked.
pub(crate) struct Locked(());

/// Takes the lock of the list. The caller holds off preemption.
pub(crate) fn lock() -> Locked {
    FREE.lock.lock();
    Locked(())
}

impl Drop for Locked {
    fn drop(&mut self) {
        FREE.lock.unlock();
    }
}

/// A signal in use by a [`block_on`].
struct InUse(&'static Signal);

impl InUse {
    fn take() -> InUse {
        trust(&TABLE);
        let free = FREE.with(|first| {
            let signal = (*first)?;
            *first = signal.next.take();
            Some(signal)
        });
        let signal = free.unwrap_or_else(|| {
            let (state, waiter) = (AtomicUsize::new(WAITS), AtomicUsize::new(0));
            Box::leak(Box::new(Signal { state, waiter, next: Cell::new(None) }))
        });
        // Wakers get here after this.
        signal.waiter.store(Waiter::current().into_word(), Ordering::Release);
        InUse(signal)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        FREE.with(|first| self.0.next.set(first.replace(self.0)));
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| ());

fn raw(signal: &'static Signal) -> RawWaker {
    RawWaker::new(std::ptr::from_ref(signal).cast(), &TABLE)
}

/// # Safety
/// `signal` is a signal.
unsafe fn clone(signal: *const ()) -> RawWaker {
    RawWaker::new(signal, &TABLE)
}

/// # Safety
/// `signal` is a signal.
unsafe fn wake(signal: *const ()) {
    // SAFETY: signals are never freed.
    let signal = unsafe { &*signal.cast::<Signal>() };
    if signal.state.swap(WOKEN, Ordering::AcqRel) == WAITS {
        // SAFETY: stored by `take`, before there was a waker.
        unsafe { Waiter::from_word(signal.waiter.load(Ordering::Acquire)) }.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Mutex, oneshot};
    use crate::{RuntimeBuilder, spawn};
    use std::future::poll_fn;
    use std::sync::Arc;

    /// Runs `f` in an ordinary thread and in a task.
    fn everywhere(f: fn()) {
        f();
        RuntimeBuilder::new().policy("fifo").workers(1).build().unwrap().run(f);
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again() {
        everywhere(|| {
            let mut left = 100;
            block_on(poll_fn(|cx| {
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            }));
        });
    }

    /// The wait for the mutex in the poll uses up the permit that the waker left; the future is polled again all the
    /// same.
    #[test]
    fn a_wake_before_a_wait_in_the_same_poll_is_not_lost() {
        everywhere(|| {
            let mutex = Arc::new(Mutex::new(()));
            let mut polls = 0;
            block_on(poll_fn(|cx| {
                polls += 1;
                if polls == 2 {
                    return Poll::Ready(());
                }
                let held = mutex.clone();
                let (locked, is_locked) = oneshot::channel();
                let holder = spawn(move || {
                    let guard = held.lock();
                    locked.send(()).unwrap();
                    crate::sleep(std::time::Duration::from_millis(2));
                    drop(guard);
                });
                is_locked.recv().unwrap();
                cx.waker().wake_by_ref();
                drop(mutex.lock());
                holder.join().unwrap();
                Poll::Pending
            }));
        });
    }

    #[test]
    fn a_late_wake_does_no_harm_and_calls_may_be_nested() {
        everywhere(|| {
            let mut late = None;
            block_on(poll_fn(|cx| {
                late = Some(cx.waker().clone());
                assert_eq!(block_on(async { block_on(async { 7 }) + 1 }), 8);
                Poll::Ready(())
            }));
            let late = late.unwrap();
            for round in 0..50 {
                let (answer, question) = oneshot::channel();
                let waker = late.clone();
                spawn(move || {
                    waker.wake();
                    answer.send(round).unwrap();
                });
                assert_eq!(block_on(question), Ok(round));
            }
        });
    }

    #[test]
    fn a_panic_returns_the_signal() {
        everywhere(|| {
            let panics = || block_on(async { panic!("in a future") });
            assert!(std::panic::catch_unwind(panics).is_err());
            assert_eq!(block_on(async { 1 }), 1);
        });
    }
}
