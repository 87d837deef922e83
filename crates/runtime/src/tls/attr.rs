//! The bounds of a task's stack, for callers of `pthread_getattr_np` (garbage collectors, stack checkers).

use crate::libc_fn::LibcFn;
use crate::task::{GUARD, Task};
use std::ffi::c_int;

type GetAttr = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;

/// Answers a task's question about its own stack; passes other questions on.
///
/// # Safety
/// As the C library's: `attr` is writable and is destroyed by the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attr: *mut libc::pthread_attr_t,
) -> c_int {
    if let Some(task) = Task::current().filter(|t| t.fs == thread as usize && !t.is_adopted()) {
        let (base, size) = (task.stack.base + GUARD, task.stack.size - GUARD);
        // SAFETY: the caller's attribute; the bounds are those of the task's stack.
        return unsafe {
            libc::pthread_attr_init(attr);
            libc::pthread_attr_setstack(attr, base as *mut libc::c_void, size)
        };
    }
    static REAL: LibcFn = LibcFn::new(c"pthread_getattr_np");
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe { std::mem::transmute::<usize, GetAttr>(REAL.address())(thread, attr) }
}
