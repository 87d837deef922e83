//! The table of task slots of one runtime.

use heddle_core::{TaskId, TaskSlot};
use heddle_sys::memory;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The maximum number of live tasks in one runtime.
pub(crate) const MAX_TASKS: usize = 1 << 22;

/// Task slots by id. Grows at the end, never shrinks or moves, and is unmapped with its runtime.
pub(crate) struct SlotTable<T> {
    base: *mut TaskSlot<T>,
    len: AtomicUsize,
    free: Mutex<FreeIds>,
}

/// A stack of freed ids, in memory reserved for all of them: a worker's loop frees ids, and must not wait for the
/// allocator, or for a thread that waits for the allocator with the lock held.
struct FreeIds {
    base: *mut u32,
    len: usize,
}

// SAFETY: the memory has no other user.
unsafe impl Send for FreeIds {}

impl FreeIds {
    fn new() -> io::Result<FreeIds> {
        Ok(FreeIds { base: memory::reserve(MAX_TASKS * size_of::<u32>())?.cast(), len: 0 })
    }

    fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: written by `push`.
        Some(unsafe { self.base.add(self.len).read() })
    }

    /// Adds an id that is not in the stack, so there is room.
    fn push(&mut self, id: u32) {
        assert!(self.len < MAX_TASKS, "a slot is freed once");
        // SAFETY: inside the reservation.
        unsafe { self.base.add(self.len).write(id) };
        self.len += 1;
    }
}

impl Drop for FreeIds {
    fn drop(&mut self) {
        // SAFETY: our own reservation, unused from here on.
        unsafe { memory::release(self.base.cast(), MAX_TASKS * size_of::<u32>()) };
    }
}

// SAFETY: slots below `len` are initialised and shared; the rest belongs to `take` under its lock.
unsafe impl<T: Sync + Send> Sync for SlotTable<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + Send> Send for SlotTable<T> {}

impl<T: Default> SlotTable<T> {
    /// Returns an empty table. Reserves address space, but no memory.
    pub(crate) fn new() -> io::Result<Self> {
        let free = Mutex::new(FreeIds::new()?);
        let base = memory::reserve(MAX_TASKS * size_of::<TaskSlot<T>>())?;
        Ok(SlotTable { base: base.cast(), len: AtomicUsize::new(0), free })
    }

    /// Locks the free ids. Nothing under this lock panics or allocates.
    fn free(&self) -> MutexGuard<'_, FreeIds> {
        self.free.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns all slots that exist.
    #[inline]
    pub(crate) fn all(&self) -> &[TaskSlot<T>] {
        // SAFETY: `take` initialised these before it published the length.
        unsafe { std::slice::from_raw_parts(self.base, self.len.load(Ordering::Acquire)) }
    }

    /// Allocates a slot for a new task.
    ///
    /// # Errors
    /// Fails if [`MAX_TASKS`] tasks are alive.
    pub(crate) fn take(&self) -> io::Result<TaskId> {
        let mut free = self.free();
        if let Some(id) = free.pop() {
            return Ok(TaskId(id));
        }
        let id = self.len.load(Ordering::Relaxed);
        if id == MAX_TASKS {
            drop(free);
            return Err(io::Error::other(format!(
                "cannot create a task: {MAX_TASKS} are alive in this runtime, the maximum"
            )));
        }
        // SAFETY: inside the reservation, not yet published, and the lock is held.
        unsafe { self.base.add(id).write(TaskSlot::default()) };
        self.len.store(id + 1, Ordering::Release);
        Ok(TaskId(id as u32))
    }

    /// Frees a slot.
    pub(crate) fn give(&self, id: TaskId) {
        let mut free = self.free();
        self.all()[id.index()].host.set(0);
        free.push(id.0);
    }

    /// Runs `f` while no slot is allocated or freed. The `host` of a slot in use is set.
    pub(crate) fn hold<R>(&self, f: impl FnOnce() -> R) -> R {
        let _free = self.free();
        f()
    }
}

impl<T> Drop for SlotTable<T> {
    fn drop(&mut self) {
        let len = *self.len.get_mut();
        // SAFETY: `take` initialised these; the reservation is ours, and unused from here on.
        unsafe {
            std::ptr::drop_in_place(std::ptr::slice_from_raw_parts_mut(self.base, len));
            memory::release(self.base.cast(), MAX_TASKS * size_of::<TaskSlot<T>>());
        }
    }
}
