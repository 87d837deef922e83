//! Records by `pthread_t`.

use super::Thread;
use heddle_sys::memory;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// All records by thread pointer: a hash table that only grows.
pub(super) struct Registry {
    slots: &'static [AtomicPtr<Thread>],
}

impl Registry {
    /// Twice the maximum number of tasks. Only the pages that are used cost memory.
    const SLOTS: usize = 1 << 21;

    pub(super) fn get() -> &'static Registry {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        REGISTRY.get_or_init(|| {
            let memory = memory::reserve(Registry::SLOTS * size_of::<AtomicPtr<Thread>>());
            let base = memory.unwrap_or_else(|e| heddle_sys::abort(e));
            // SAFETY: fresh zeroed memory of this size, never given back; zero is a null pointer.
            let slots = unsafe { std::slice::from_raw_parts(base.cast(), Registry::SLOTS) };
            Registry { slots }
        })
    }

    fn probe(&self, fs: usize) -> impl Iterator<Item = &'static AtomicPtr<Thread>> {
        let hash = (fs as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let start = hash as usize % Registry::SLOTS;
        self.slots[start..].iter().chain(&self.slots[..start])
    }

    pub(super) fn add(&self, thread: &'static Thread) {
        let at = ptr::from_ref(thread).cast_mut();
        let free = |slot: &&AtomicPtr<Thread>| {
            slot.compare_exchange(ptr::null_mut(), at, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        let added = self.probe(thread.task.thread()).find(free);
        assert!(added.is_some(), "there are twice as many slots as tasks");
    }

    pub(super) fn find(&self, fs: usize) -> Option<&'static Thread> {
        // SAFETY: null, or a record, which is never freed.
        let threads =
            self.probe(fs).map_while(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() });
        { threads }.find(|thread| thread.task.thread() == fs)
    }
}
