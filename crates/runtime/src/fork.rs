//! The runtime in the child of a fork: gone, but ready to be started again.
//!
//! Only the thread that forked exists in the child. If that was a worker, its task goes on as an ordinary thread on the
//! task's stack and thread-local storage. The runtime's memory stays as it was and is used no more.

use crate::interpose;
use crate::preempt::NoPreempt;
use crate::share;
use crate::sync::thread_parker;
use crate::task::Task;
use crate::tls;
use crate::uintr;
use crate::worker::Worker;
use crate::{ambient, block_on, pool, slab};
use heddle_arch::PreemptCount;
use std::cell::Cell;

/// The locks that another thread may hold when a thread forks.
type Locks = (ambient::Global, pool::Locks, slab::Locks, thread_parker::Locked, block_on::Locked);

/// The locks that [`before`] took. Used by the thread that holds them.
struct HeldLocks(Cell<Option<Locks>>);
// SAFETY: as said there.
unsafe impl Sync for HeldLocks {}
static HELD_LOCKS: HeldLocks = HeldLocks(Cell::new(None));

/// Prepares the calling thread to fork: it holds the runtime's locks, and is not preempted, until [`in_parent`] or
/// [`in_child`].
pub fn before() {
    if Task::current().is_some() {
        // SAFETY: a task runs on a worker.
        unsafe { PreemptCount::disable() };
    }
    let locks = (
        ambient::lock(),
        pool::lock_all(),
        slab::lock_all(),
        thread_parker::lock(),
        block_on::lock(),
    );
    HELD_LOCKS.0.set(Some(locks));
}

/// Undoes [`before`].
pub fn in_parent() {
    drop(HELD_LOCKS.0.take());
    if Task::current().is_some() {
        let guard = NoPreempt::new();
        // SAFETY: a task runs on a worker. `before` has counted, and the guard counts on.
        let _ = unsafe {
            Worker::current().is_parent.set(true);
            PreemptCount::enable()
        };
        drop(guard);
    }
}

/// Makes the calling thread, in the child, an ordinary thread of a process that has no runtime.
///
/// # Safety
/// The caller is in the child of a fork that [`before`] prepared.
pub unsafe fn in_child() {
    // First: what runs here may count.
    heddle_sys::fork::ChildMemory::give();
    if let Some((mut global, pool, slab, parkers, signals)) = HELD_LOCKS.0.take() {
        *global = None;
        drop((global, pool, slab, parkers, signals));
    }
    share::forget_in_child();
    uintr::forget_in_child();
    interpose::lead(0);
    if Task::current().is_none() {
        return;
    }
    // SAFETY: a task runs on a worker, in the child on a copy of it, which nothing else uses. Zero means no block.
    unsafe {
        let descriptor = Worker::current().loop_fs.get();
        interpose::unpin();
        tls::end_restartable_sequences(descriptor);
        Task::leave_current();
        heddle_arch::set_gs_base(0);
        heddle_sys::signal::set_alternate_stack(libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        });
    }
}
