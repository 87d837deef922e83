//! The library's own memory.
//!
//! The program's allocator may be one whose lock a preempted task holds, or one that calls `pthread_mutex_lock` itself:
//! neither may happen while the library serves such a call. So it has a heap of its own, by Doug Lea's allocator, over
//! `mmap`. It allocates when a stack is used for the first time and when a key or a thread's name is set, not for each
//! thread.

use dlmalloc::Dlmalloc;
use heddle_rt::raw::NoPreempt;
use heddle_sync::SpinLock;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

/// See the module.
pub(crate) struct Slabs {
    lock: SpinLock,
    heap: UnsafeCell<Dlmalloc>,
}

// SAFETY: the heap is used under the lock only.
unsafe impl Sync for Slabs {}

impl Slabs {
    pub(crate) const fn new() -> Slabs {
        Slabs { lock: SpinLock::new(), heap: UnsafeCell::new(Dlmalloc::new()) }
    }

    /// Takes the lock: the calling thread forks.
    pub(crate) fn before_fork(&self) {
        self.lock.lock();
    }

    /// Releases the lock, in the parent and in the child.
    pub(crate) fn after_fork(&self) {
        self.lock.unlock();
    }

    fn with<R>(&self, f: impl FnOnce(&mut Dlmalloc) -> R) -> R {
        let _guard = NoPreempt::new();
        self.lock.lock();
        // SAFETY: the lock is held. The heap never panics.
        let result = f(unsafe { &mut *self.heap.get() });
        self.lock.unlock();
        result
    }
}

// SAFETY: Dlmalloc's contract is the trait's, under one lock.
unsafe impl GlobalAlloc for Slabs {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's block.
        self.with(|heap| unsafe { heap.free(at, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's block.
        self.with(|heap| unsafe { heap.realloc(at, layout.size(), layout.align(), size) })
    }
}
