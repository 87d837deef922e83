//! Tasks that another library polls: those of an async runtime that has given its scheduling away ([`crate::raw`]).

use crate::ambient;
use crate::carrier::typed::{Typed, class_of};
use crate::preempt::NoPreempt;
use crate::task::HeaderRef;
use heddle_core::TaskAttrs;
use std::ffi::c_void;
use std::io;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Polls what is at the address. Returns 1 if that has ended and is not polled again.
pub type PollFn = extern "C-unwind" fn(*mut c_void) -> i32;

/// A task that another library polls, by reference. It begins when it is woken first.
#[derive(Clone, Copy, Debug)]
pub struct ForeignTask(HeaderRef);

struct Foreign {
    poll: PollFn,
    data: usize,
}

impl Future for Foreign {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match (self.poll)(self.data as *mut c_void) {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl ForeignTask {
    /// Creates a task of the caller's runtime, or the process-wide one, that calls `poll(data)`: once for each wake,
    /// and once more if it was woken meanwhile, never twice at a time, until that returns 1.
    ///
    /// # Errors
    /// The system's, if it has no memory.
    pub fn create(poll: PollFn, data: *mut c_void) -> io::Result<ForeignTask> {
        let sched = ambient::scheduler()?;
        let _guard = NoPreempt::new();
        const { assert!(class_of::<Foreign>().is_some(), "two words fit") };
        let foreign = Foreign { poll, data: data as usize };
        let vtable = &Typed::<Foreign>::VTABLE;
        let header = HeaderRef::create(sched, TaskAttrs::default(), foreign, vtable)?;
        let _ = header.get().state.leave();
        header.get().is_started.store(false, Ordering::Relaxed);
        Ok(ForeignTask(header))
    }

    /// Wakes it; `by_itself` if it asks to yield. From any thread, also in its own poll.
    #[inline]
    pub fn wake(self, by_itself: bool) {
        let header = self.0;
        if !header.get().is_started.load(Ordering::Relaxed)
            && !header.get().is_started.swap(true, Ordering::AcqRel)
        {
            header.start();
        } else {
            header.wake_as(by_itself);
        }
    }

    /// Drops the creator's reference: the task is not woken again. One that has not ended is not polled again, either,
    /// unless it is being polled.
    #[inline]
    pub fn release(self) {
        if !self.0.get().state.is_done() {
            self.end();
        }
        self.0.drop_reference();
    }

    #[cold]
    fn end(self) {
        self.0.cancel();
        if !self.0.get().is_started.swap(true, Ordering::AcqRel) {
            // It ends where it would begin.
            self.0.start();
        }
    }

    /// Returns the address by which [`ForeignTask::from_address`] finds it.
    #[inline]
    pub fn address(self) -> NonNull<c_void> {
        // SAFETY: a header's address is not null.
        unsafe { NonNull::new_unchecked(self.0.at().cast()) }
    }

    /// # Safety
    /// The address came from [`ForeignTask::address`], and the creator's reference has not been dropped.
    #[inline]
    pub unsafe fn from_address(at: NonNull<c_void>) -> ForeignTask {
        // SAFETY: by the caller's promise.
        ForeignTask(unsafe { HeaderRef::from_addr(at.as_ptr() as usize) })
    }
}
