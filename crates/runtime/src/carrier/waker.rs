//! Waking, cancelling and freeing futures.

use super::typed::{Typed, class_of};
use crate::preempt::NoPreempt;
use crate::slab;
use crate::task::{HeaderRef, Scheduler, Task};
use crate::wake::reach;
use crate::worker::{Worker, runtime_of_helper};
use heddle_core::TaskAttrs;
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

impl HeaderRef {
    /// The future's runtime ends before it. Returns whether [`HeaderRef::wake_handle_of_lost`] must be called, once.
    /// May be called without a reference while no number of its runtime is given back.
    pub(crate) fn lose(self) -> bool {
        self.get().state.lose()
    }

    /// Tells the handle that the future is lost.
    pub(crate) fn wake_handle_of_lost(self) {
        // SAFETY: `lose` has left the waker to its caller, with a reference.
        unsafe { self.take_waker() }.wake();
        self.drop_reference();
    }

    /// Wakes the future; for anyone who has a reference.
    #[inline]
    pub(crate) fn wake(self) {
        self.wake_as(Task::current().is_some_and(|task| task.entity() == self.entity()));
    }

    /// Like [`HeaderRef::wake`]; `by_itself` if the caller is its own poll.
    #[inline]
    pub(crate) fn wake_as(self, by_itself: bool) {
        if self.get().state.wake(by_itself) {
            self.enqueue();
        }
    }

    /// Makes a future runnable that has never been.
    pub(crate) fn start(self) {
        let _guard = NoPreempt::new();
        reach(self.entity(), |sched| sched.start(self.entity()));
    }

    /// Cancels the future; for anyone who has a reference.
    pub(crate) fn cancel(self) {
        if self.get().state.cancel() {
            self.enqueue();
        }
    }

    #[inline]
    fn enqueue(self) {
        let _guard = NoPreempt::new();
        // A future of a runtime that was dropped is never polled again.
        reach(self.entity(), |sched| sched.enqueue_woken(self.entity()));
    }

    /// Drops a reference of the caller's.
    #[inline]
    pub(crate) fn drop_reference(self) {
        if self.get().state.drop_reference() {
            self.free();
        }
    }

    /// Recycles the memory.
    fn free(self) {
        let _guard = NoPreempt::new();
        if reach(self.entity(), |sched| sched.recycle_future(self)).is_none() {
            self.get().entity.disown();
            slab::give(self.class(), [self].into_iter());
        }
    }

    /// Returns a waker without a reference of its own.
    #[inline(always)]
    pub(super) fn raw_waker(self) -> RawWaker {
        RawWaker::new(self.at().cast_const().cast(), &WAKER)
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(
    |at| {
        let header = header_at(at);
        header.get().state.add_reference();
        header.raw_waker()
    },
    |at| {
        let header = header_at(at);
        header.wake();
        header.drop_reference();
    },
    |at| header_at(at).wake(),
    |at| header_at(at).drop_reference(),
);

#[inline(always)]
fn header_at(at: *const ()) -> HeaderRef {
    // SAFETY: the data of a waker is a header's address (`raw_waker`).
    unsafe { HeaderRef::from_addr(at as usize) }
}

/// The functions of wakers that may be called anywhere, beside those of futures.
static TRUSTED: AtomicPtr<RawWakerVTable> = AtomicPtr::new(ptr::null_mut());

/// Wakers with these functions wait for no lock that a task may hold, and neither allocate nor free.
#[inline]
pub(crate) fn trust(table: &'static RawWakerVTable) {
    TRUSTED.store(ptr::from_ref(table).cast_mut(), Ordering::Relaxed);
}

/// Wakes `waker`, for callers that handle a timer or a socket: between two tasks, or in the middle of one that was
/// interrupted.
///
/// A waker that is not the runtime's own may want a lock, which the interrupted code may hold, or may allocate: a task
/// calls it.
#[inline]
pub(crate) fn call_waker(waker: Waker) {
    let table = waker.vtable();
    if ptr::eq(table, &WAKER) || ptr::eq(table, TRUSTED.load(Ordering::Relaxed)) {
        return waker.wake();
    }
    let _guard = NoPreempt::new();
    match Worker::here().map(|worker| worker.liveness).or_else(runtime_of_helper) {
        None => waker.wake(),
        Some(liveness) => call_in_task(liveness.scheduler(), waker),
    }
}

#[cold]
fn call_in_task(sched: &'static dyn Scheduler, waker: Waker) {
    const { assert!(class_of::<Call>().is_some(), "a waker fits") };
    // Memory of futures is mapped, not allocated. Without any, dropping the call wakes: at worst that waits for the
    // lock until another worker has taken over.
    let (attrs, call) = (TaskAttrs::default(), Call(Some(waker)));
    if let Ok(header) = HeaderRef::create(sched, attrs, call, &Typed::<Call>::VTABLE) {
        let _ = header.get().state.leave();
        sched.start(header.entity());
        header.drop_reference();
    }
}

/// Calls a waker as it is dropped: after its poll, or without one.
struct Call(Option<Waker>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Waker::wake);
    }
}

impl Future for Call {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
