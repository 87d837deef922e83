//! Kernel threads that start without the program's allocator.
//!
//! A task may be preempted while it holds the allocator's lock, if the runtime does not know the allocator's code. Then
//! every thread that allocates waits for the task, and the task waits for a worker. A worker that had to allocate
//! before it could run the task would wait forever, and `std::thread::spawn` allocates on both sides. So here the
//! closure lies in its own mapping, and the C library maps the stack. The little that the C library allocates for a
//! thread comes from its own allocator, in which no task is preempted.

use crate::interpose;
use heddle_sys::memory;
use heddle_sys::thread;
use std::ffi::{CStr, c_void};
use std::fmt::{self, Display, Write};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a thread's stack, the default of the standard library.
const STACK: usize = 2 << 20;

/// The name of a thread: the kernel keeps 15 bytes and a zero.
#[derive(Clone, Copy, Default)]
pub(crate) struct Name {
    bytes: [u8; 16],
    len: usize,
}

impl Name {
    /// Returns as much of `text` as fits.
    pub(crate) fn of(text: impl Display) -> Name {
        let mut name = Name::default();
        // Running out of room is not an error.
        let _ = write!(name, "{text}");
        name
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let end = (0..=text.len().min(room)).rev().find(|&end| text.is_char_boundary(end));
        let fits = &text.as_bytes()[..end.unwrap_or(0)];
        self.bytes[self.len..self.len + fits.len()].copy_from_slice(fits);
        self.len += fits.len();
        Ok(())
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a new thread finds.
struct Start<F> {
    name: Name,
    run: F,
}

/// Runs `run` in a new thread, for which an [`Ending`] waits.
///
/// # Errors
/// The system's, if it has no memory or cannot create a thread.
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(name: Name, run: F) -> io::Result<()> {
    let start = memory::reserve(size_of::<Start<F>>())?.cast::<Start<F>>();
    // SAFETY: fresh memory that is large enough, and aligned to a page. The thread that takes the closure out
    // releases it: the new thread, or the caller where there is none.
    unsafe {
        start.write(Start { name, run });
        let error = create(enter::<F>, start.cast());
        if error == 0 {
            return Ok(());
        }
        drop(take(start));
        Err(io::Error::from_raw_os_error(error))
    }
}

/// The first function of a thread. A panic in it ends the process.
extern "C" fn enter<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` left this for us alone. The GS base is inherited; zero means no worker.
    let Start { name, run } = unsafe {
        heddle_arch::set_gs_base(0);
        take(start.cast::<Start<F>>())
    };
    thread::set_name(name.as_c_str());
    // A panic unwinds, naming a policy on its way, only if something catches it.
    if panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
        std::process::abort()
    }
    std::ptr::null_mut()
}

/// # Safety
/// `start` is what `spawn` mapped and wrote, and is used no more.
unsafe fn take<F>(start: *mut Start<F>) -> Start<F> {
    // SAFETY: by the caller's promise.
    unsafe {
        let taken = start.read();
        memory::release(start.cast(), size_of::<Start<F>>());
        taken
    }
}

/// Returns the C library's error number, zero if it succeeded.
///
/// # Safety
/// `argument` is what `entry` expects.
unsafe fn create(entry: interpose::Entry, argument: *mut c_void) -> i32 {
    // SAFETY: all-zero is room for attributes, which the C library fills; the rest is the caller's promise.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK);
        let error = interpose::create_thread(&attributes, entry, argument);
        libc::pthread_attr_destroy(&mut attributes);
        error
    }
}

/// The thread that ended last, whose resources have not been reclaimed. Each ending thread reclaims those of the
/// previous one, so there is no list of them to keep.
#[derive(Default)]
pub(crate) struct Ending(AtomicU64);

/// An ending thread to wait for; zero if there is none.
#[must_use]
pub(crate) struct Ended(u64);

impl Ending {
    /// Called when the calling thread is about to end. It waits for the previous one ([`Ended::join`]) as the last
    /// thing it does.
    pub(crate) fn caller_ends(&self) -> Ended {
        // SAFETY: no arguments, no failure.
        Ended(self.0.swap(unsafe { libc::pthread_self() }, Ordering::AcqRel))
    }

    /// Returns the last one, if no other follows.
    pub(crate) fn last(&self) -> Ended {
        Ended(self.0.swap(0, Ordering::AcqRel))
    }
}

impl Drop for Ending {
    /// Nothing waits for the last thread, which may be the caller.
    fn drop(&mut self) {
        if *self.0.get_mut() != 0 {
            // SAFETY: a thread that was not joined and never will be: its number was here alone.
            unsafe { libc::pthread_detach(*self.0.get_mut()) };
        }
    }
}

impl Ended {
    /// Waits until the thread is gone.
    pub(crate) fn join(self) {
        if self.0 != 0 {
            // SAFETY: a thread that was neither joined nor detached: its number was handed to us alone.
            unsafe { libc::pthread_join(self.0, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    #[test]
    fn a_name_is_cut_where_the_kernel_would_cut_it() {
        assert_eq!(Name::of("heddle-7").as_str(), "heddle-7");
        assert_eq!(Name::of("0123456789abcdefgh").as_str(), "0123456789abcde");
        assert_eq!(Name::of("0123456789abcd\u{e9}").as_str(), "0123456789abcd");
        assert_eq!(Name::of(format_args!("{}-{}", "a", 5)).as_str(), "a-5");
    }

    #[test]
    fn each_thread_that_ends_waits_for_the_one_before() {
        let ending = Arc::new(Ending::default());
        let (say, hear) = mpsc::channel();
        for number in 0..20 {
            let (ending, say) = (ending.clone(), say.clone());
            let run = move || {
                say.send(std::fs::read_to_string("/proc/thread-self/comm").unwrap()).unwrap();
                let before = ending.caller_ends();
                drop(ending);
                before.join();
            };
            spawn(Name::of(format_args!("test-{number}")), run).unwrap();
        }
        drop(say);
        let mut names: Vec<String> = hear.iter().collect();
        names.sort_by_key(|name| name.len());
        assert_eq!((names.len(), names[0].starts_with("test-")), (20, true));
        while Arc::strong_count(&ending) > 1 {
            std::thread::yield_now();
        }
        ending.last().join();
        ending.last().join();
    }
}
