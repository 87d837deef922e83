//! The table of task slots of one runtime.

use heddle_core::{TaskId, TaskSlot};
use heddle_sys::memory;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most tasks that can live in one runtime at a time.
pub(crate) const MAX_TASKS: usize = 1 << 20;

/// Slots by id; grows at the end, never shrinks, never moves; unmapped with its runtime.
pub(crate) struct SlotTable<T> {
    base: *mut TaskSlot<T>,
    len: AtomicUsize,
    free: Mutex<Vec<u32>>,
}

// SAFETY: slots below `len` are initialised and shared; the rest belongs to `take` under its lock.
unsafe impl<T: Sync + Send> Sync for SlotTable<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + Send> Send for SlotTable<T> {}

impl<T: Default> SlotTable<T> {
    /// An empty table; reserves address space, no memory.
    pub(crate) fn new() -> io::Result<Self> {
        let base = memory::reserve(MAX_TASKS * size_of::<TaskSlot<T>>())?;
        Ok(SlotTable { base: base.cast(), len: AtomicUsize::new(0), free: Mutex::default() })
    }

    /// All slots that exist.
    #[inline]
    pub(crate) fn all(&self) -> &[TaskSlot<T>] {
        // SAFETY: `take` initialised these before it published the length.
        unsafe { std::slice::from_raw_parts(self.base, self.len.load(Ordering::Acquire)) }
    }

    /// A slot for a new task.
    ///
    /// # Errors
    /// When [`MAX_TASKS`] are alive.
    pub(crate) fn take(&self) -> io::Result<TaskId> {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(id) = free.pop() {
            return Ok(TaskId(id));
        }
        let id = self.len.load(Ordering::Relaxed);
        if id == MAX_TASKS {
            return Err(io::Error::other(format!(
                "{MAX_TASKS} tasks are alive in this runtime; no more fit"
            )));
        }
        // SAFETY: inside the reservation, not yet published, and the lock is held.
        unsafe { self.base.add(id).write(TaskSlot::default()) };
        // Room for all, so that giving back allocates nothing: a worker's loop does that.
        let missing = (id + 1).saturating_sub(free.len());
        free.reserve(missing);
        self.len.store(id + 1, Ordering::Release);
        Ok(TaskId(id as u32))
    }

    /// Gives a slot back.
    pub(crate) fn give(&self, id: TaskId) {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        self.all()[id.index()].host.set(0);
        free.push(id.0);
    }

    /// Runs `f` while no slot is taken or given back. A slot that is in use names its host.
    pub(crate) fn hold<R>(&self, f: impl FnOnce() -> R) -> R {
        let _free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        f()
    }
}

impl<T> Drop for SlotTable<T> {
    fn drop(&mut self) {
        let len = *self.len.get_mut();
        // SAFETY: `take` initialised these; the reservation is ours alone, and nobody uses it from here on.
        unsafe {
            std::ptr::drop_in_place(std::ptr::slice_from_raw_parts_mut(self.base, len));
            memory::release(self.base.cast(), MAX_TASKS * size_of::<TaskSlot<T>>());
        }
    }
}
