//! Signals of the program's first thread, as it becomes a task, and as it goes back to its kernel thread.

use super::{Set, State, UNBLOCKABLE, actions, queue, receiver};
use crate::sys::syscall;
use crate::thread::Thread;
use heddle_sys::signal::{bit, change_mask};
use libc::stack_t;
use std::ptr;
use std::sync::atomic::Ordering;

/// All signals but the C library's own two.
const ALL: Set = !(bit(32) | bit(33));

/// Holds back the signals of the calling kernel thread. Returns the mask that it had.
pub(crate) fn hold_back() -> Set {
    change_mask(libc::SIG_SETMASK, ALL)
}

/// Undoes [`hold_back`].
pub(crate) fn let_through(mask: Set) {
    change_mask(libc::SIG_SETMASK, mask);
}

/// Returns whether the calling kernel thread is in a signal's handler: returning from that, the kernel restores the
/// mask and the alternate stack of whatever thread it is on.
pub(crate) fn is_in_handler() -> bool {
    actions::is_in_kernel() || alternate_stack(None).ss_flags & libc::SS_ONSTACK != 0
}

/// Changes the alternate stack of the calling kernel thread. Returns the one before.
fn alternate_stack(new: Option<stack_t>) -> stack_t {
    // SAFETY: all-zero is room for a description. The program gave the stack for this thread.
    unsafe {
        let mut old: stack_t = std::mem::zeroed();
        let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
        syscall!(libc::SYS_sigaltstack, new, &raw mut old);
        old
    }
}

fn describe((at, size): (usize, usize)) -> stack_t {
    let ss_flags = if size == 0 { libc::SS_DISABLE } else { 0 };
    stack_t { ss_sp: at as *mut _, ss_flags, ss_size: size }
}

/// Gives `thread`, which does not run yet, the `mask` of the calling kernel thread, and its alternate stack.
pub(crate) fn begin(thread: &Thread, mask: Set) {
    let State { mask: own, altstack, .. } = &thread.signals;
    let stack = alternate_stack(Some(describe((0, 0))));
    if stack.ss_flags & libc::SS_DISABLE == 0 {
        altstack.set((stack.ss_sp as usize, stack.ss_size));
    }
    own.store(mask & !UNBLOCKABLE, Ordering::SeqCst);
    receiver::opened(!mask);
}

/// Prepares `thread`, the caller, to go back: from here on it gets no signal. Returns its mask.
pub(crate) fn end(thread: &Thread) -> Set {
    let mask = thread.signals.mask.swap(!0, Ordering::SeqCst);
    queue::leave(thread, !0);
    queue::discard(thread);
    mask
}

/// Gives the calling kernel thread what `thread` had.
pub(crate) fn begin_again(thread: &Thread, mask: Set) {
    receiver::start();
    alternate_stack(Some(describe(thread.signals.altstack.get())));
    let_through(mask);
}
