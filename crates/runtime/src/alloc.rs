//! An allocator in which no task is preempted.

use crate::preempt;
use std::alloc::{GlobalAlloc, Layout};

/// Runs an allocator with preemption held off: a task that lost the CPU inside it would keep its locks.
///
/// The C library's allocator needs no help, and a runtime finds jemalloc, mimalloc, snmalloc, tcmalloc and rpmalloc by
/// their symbols. With any other allocator, and in stripped programs, each wait for a task preempted inside the
/// allocator costs a millisecond and a kernel thread. This type costs one to two nanoseconds a call instead:
///
/// ```
/// use heddle_rt::alloc::NoPreempt;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: NoPreempt<System> = NoPreempt(System);
/// # let _ = vec![1];
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPreempt<A>(pub A);

// SAFETY: passes every call on as it is. What runs besides, perhaps other tasks at the end of the call, does not
// unwind and does not touch the memory.
unsafe impl<A: GlobalAlloc> GlobalAlloc for NoPreempt<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _held = preempt::NoPreempt::new();
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _held = preempt::NoPreempt::new();
        // SAFETY: the caller's contract.
        unsafe { self.0.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _held = preempt::NoPreempt::new();
        // SAFETY: the caller's contract.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _held = preempt::NoPreempt::new();
        // SAFETY: the caller's contract.
        unsafe { self.0.realloc(at, layout, size) }
    }
}
