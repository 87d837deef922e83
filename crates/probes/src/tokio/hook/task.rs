//! Added by Heddle: tasks that are scheduled and polled outside of tokio.
//!
//! The state of a task remains tokio's: a task that must be polled becomes `Notified`, at most once until the poll
//! begins. Heddle gets the `Notified`, or rather its reference, with a wake, and the poll that follows takes it back.
//! So there is a wake for each poll, and the task exists until its last poll has begun.

#![allow(dead_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Condvar, Mutex, PoisonError};

/// A task's handle at Heddle; null until the task is scheduled there for the first time. In the task's header.
///
/// Only the owner of the task's `Notified` uses it, and the last owner of the task.
pub(super) struct Slot(Cell<*mut c_void>);

impl Slot {
    pub(super) const fn new() -> Slot {
        Slot(Cell::new(ptr::null_mut()))
    }
}

impl Drop for Slot {
    /// The task is deallocated: nothing refers to it any more, so no wake is outstanding.
    fn drop(&mut self) {
        if let (Some(table), false) = (crate::heddle::table(), self.0.get().is_null()) {
            (table.release)(self.0.get());
        }
    }
}

/// Tasks that a shutdown has taken out of `OwnedTasks`, and that have not ended yet: polls outside of tokio's workers
/// must end before the runtime does.
pub(crate) struct Ending {
    /// It is below zero for a moment if a task ends before it was counted.
    pending: AtomicIsize,
    mutex: Mutex<()>,
    ended: Condvar,
}

impl Ending {
    pub(super) fn new() -> Ending {
        Ending { pending: AtomicIsize::new(0), mutex: Mutex::new(()), ended: Condvar::new() }
    }

    /// A task was taken out, or not put in since the runtime ends. It is going to be shut down.
    pub(super) fn begin(&self) {
        self.pending.fetch_add(1, AcqRel);
    }

    /// Such a task has ended: its future and its output, if it is not wanted, are dropped.
    pub(super) fn end(&self) {
        self.pending.fetch_sub(1, AcqRel);
        drop(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.notify_all();
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Acquire) != 0
    }

    /// Waits until all have ended.
    pub(crate) fn wait(&self) {
        let mut guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_pending() {
            guard = self.ended.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

cfg_rt_multi_thread! {
    use super::{Header, LocalNotified, Notified, RawTask, Task};
    use crate::loom::sync::Arc;
    use crate::runtime::context::heddle_context::poll_with;
    use crate::runtime::scheduler::multi_thread::Handle;
    use crate::task::coop;

    use std::marker::PhantomData;
    use std::mem;
    use std::ptr::NonNull;

    /// Schedules the task at Heddle. Returns it if it stays with tokio.
    #[inline]
    pub(crate) fn schedule(
        task: Notified<Arc<Handle>>,
        is_yield: bool,
    ) -> Option<Notified<Arc<Handle>>> {
        let Some(table) = crate::heddle::table() else {
            return Some(task);
        };
        let slot = &task.header().heddle.0;
        if slot.get().is_null() {
            slot.set((table.create)(poll, task.0.header_ptr().as_ptr().cast()));
            if slot.get().is_null() {
                // No memory: tokio's workers run it this time.
                return Some(task);
            }
        }
        let handle = slot.get();
        // `poll` takes the reference back, perhaps before `wake` returns; the caller has another one.
        mem::forget(task);
        (table.wake)(handle, i32::from(is_yield));
        None
    }

    /// Polls a task that was woken: does what a worker of tokio's does.
    extern "C-unwind" fn poll(data: *mut c_void) -> i32 {
        // SAFETY: `data` is the header of a task of a multi-thread runtime, and this poll owns the reference that
        // `schedule` has given away with its wake. Such tasks are `Send`, so any thread may poll them.
        let (task, notified, handle) = unsafe {
            let header = NonNull::new_unchecked(data.cast::<Header>());
            let raw = RawTask::from_raw(header);
            // For the state afterwards, and for the runtime's handle, which is in the task.
            raw.ref_inc();
            let notified =
                LocalNotified { task: Task::<Arc<Handle>>::new(raw), _not_send: PhantomData };
            let handle = Header::get_scheduler::<Arc<Handle>>(header);
            (Task::<Arc<Handle>>::new(raw), notified, handle)
        };
        // SAFETY: it is in the task, which `task` keeps, and never changes.
        let handle = unsafe { handle.as_ref() };
        poll_with(handle, || {
            coop::budget(|| {
                #[cfg(tokio_unstable)]
                let meta = notified.task_meta(None);
                #[cfg(tokio_unstable)]
                handle.task_hooks.poll_start_callback(&meta);

                notified.run();

                #[cfg(tokio_unstable)]
                handle.task_hooks.poll_stop_callback(&meta);
            });
        });
        let state = task.header().state.load();
        // If it is notified the runtime's end may have completed it after this poll, and there is a wake. If it was
        // notified during its last poll there is none; then the release says that it is complete.
        i32::from(state.is_complete() && !state.is_notified())
    }
}
