//! Calls that may wait for a descriptor.
//!
//! A task makes the call in its non-blocking form first. If that finds nothing, and the program did not ask for
//! `O_NONBLOCK`, the task parks until the descriptor is [`ready`] and tries again: the worker goes on with other tasks.
//! No flag of a descriptor is ever changed. Calls without a non-blocking form give their CPU away
//! ([`heddle_rt::blocking`]). Any other caller gets the C library's function, which is its cancellation point, too.
//!
//! What the library believes of a descriptor ([`kind`]) may be wrong, because the C library closes descriptors inside:
//! a wrong belief costs time, never a wrong result.

mod accept;
mod block;
mod close;
mod epoll;
mod file;
mod kind;
mod lock;
mod message;
mod message_queue;
mod names;
mod open;
mod parts;
mod poll;
mod queue;
mod ready;
mod select;
mod socket;
mod stream;

pub(crate) use ready::forget;

use crate::errno;
use heddle_core::Ns;
use heddle_rt::raw;
use heddle_sys::clock;
use std::ffi::c_int;

const EAGAIN: isize = -(libc::EAGAIN as isize);
const EBADF: isize = -(libc::EBADF as isize);
const EINTR: isize = -(libc::EINTR as isize);
const EINVAL: isize = -(libc::EINVAL as isize);
const ENOTSOCK: isize = -(libc::ENOTSOCK as isize);
const EOPNOTSUPP: isize = -(libc::EOPNOTSUPP as isize);

/// Ends a call of a task: looks at the clock and at requests, and converts the kernel's result.
#[inline]
fn done(result: isize) -> isize {
    raw::look();
    errno::of_kernel(result)
}

/// Runs `wait` as a call does that takes a mask of signals for its duration. Handlers of what that unblocks run at
/// once, and end the call.
fn with_mask(mask: *const libc::sigset_t, wait: impl FnOnce() -> isize) -> isize {
    if mask.is_null() {
        return wait();
    }
    // SAFETY: the caller's set; all zeros is room for the others. The functions are ours.
    unsafe {
        let (mut pending, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigpending(&mut pending);
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, &mut old);
        let is_handled = |&signal: &c_int| {
            libc::sigismember(&pending, signal) == 1 && libc::sigismember(mask, signal) == 0
        };
        let result = if (1..=64).any(|signal| is_handled(&signal)) { EINTR } else { wait() };
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

/// Returns when a wait of `span` from now ends; never, if that is later than the clock can say.
fn after(span: Ns) -> Option<Ns> {
    clock::now().0.checked_add(span.0).map(Ns)
}

/// Defines functions of the C library that are cancellation points. The body is what a task does; its value is the
/// kernel's result.
macro_rules! points {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {$(
        #[doc = concat!("POSIX's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// POSIX's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            if heddle_rt::raw::Caller::here() != heddle_rt::raw::Caller::Task {
                // SAFETY: the caller's contract; the function has this type.
                return unsafe { $crate::real::real!($name($($argument: $type),*) -> $result) };
            }
            $crate::cancel::point();
            $crate::io::done($body) as $result
        }
    )*};
}
use points;
