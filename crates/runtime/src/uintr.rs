//! User interrupts in this process: whether there are any, and who may send them.
//!
//! A worker under a mechanism with user interrupts is a *receiver*, by the kernel module in `kmod/`; `preempt` has its
//! handler. Its *target* is what other registered threads send to. Both belong to the worker's block, not to its
//! thread: a thread that takes the block over takes the receiver's place, so a target never leads nowhere.
//!
//! Threads that are no workers register when they first send. One that cannot sends a signal.

use heddle_arch::uintr::ExtendedState;
use heddle_sys::uintr;
pub(crate) use heddle_sys::uintr::Unavailable;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The only vector in use: it says that the task is to look whether it must yield.
pub(crate) const VECTOR: u8 = 1;

/// No target.
pub(crate) const NO_TARGET: u32 = u32::MAX;

/// Some runtime of the process has had user interrupts: its instructions can be used.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// What the handler saves of a task, and the bytes that it needs for that.
pub(crate) static COMPONENTS: AtomicU64 = AtomicU64::new(0);
pub(crate) static AREA: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The epoch in which this kernel thread, no worker, registered as a sender; negated if it could not.
    static SENDS: Cell<i64> = const { Cell::new(0) };
}

/// Makes user interrupts usable in this process.
///
/// # Errors
/// If there are none here.
pub(crate) fn prepare() -> Result<(), Unavailable> {
    if cfg!(virtual_time) {
        return Err(Unavailable::NoModule);
    }
    uintr::open()?;
    let state = ExtendedState::of_this_machine().ok_or(Unavailable::NoModule)?;
    COMPONENTS.store(state.components, Ordering::Relaxed);
    AREA.store(state.size, Ordering::Relaxed);
    IS_ACTIVE.store(true, Ordering::Release);
    Ok(())
}

/// Returns whether the process has user interrupts.
#[inline]
pub(crate) fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}

/// Lets the calling thread be interrupted, in a handler that is about to leave its task.
#[inline]
pub(crate) fn allow() {
    if is_active() {
        // SAFETY: they are enabled as long as the device is open.
        unsafe { heddle_arch::uintr::enable() };
    }
}

/// Holds user interrupts off, in a handler that is back in its task.
#[inline]
pub(crate) fn hold_off() {
    if is_active() {
        // SAFETY: as above.
        unsafe { heddle_arch::uintr::disable() };
    }
}

/// Returns whether the calling thread, no worker, may send; registers it when it first asks.
pub(crate) fn can_send() -> bool {
    let epoch = i64::from(uintr::epoch());
    if SENDS.get().abs() != epoch {
        SENDS.set(if uintr::register_sender().is_ok() { epoch } else { -epoch });
    }
    SENDS.get() > 0
}

/// Undoes the registration of the calling thread as a sender: it becomes a worker.
pub(crate) fn become_worker() {
    if SENDS.replace(0) == i64::from(uintr::epoch()) {
        uintr::unregister();
    }
}

/// Forgets, in a child of fork, what its parent has.
pub(crate) fn forget_in_child() {
    if IS_ACTIVE.swap(false, Ordering::Relaxed) {
        uintr::forget_in_child();
    }
}
