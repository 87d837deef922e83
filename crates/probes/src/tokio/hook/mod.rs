//! Added by Heddle: the tasks of multi-thread runtimes can go to a scheduler outside of tokio.
//!
//! That scheduler is a table of functions, the symbol `heddle_async`, which is looked up when the first multi-thread
//! runtime is made. Without it, or without `HEDDLE_TOKIO`, nothing here changes what tokio does.
//!
//! - `task`: a task's handle, and what is done when tokio schedules the task and when the scheduler polls it.
//! - `context`: the thread-local state of a poll.
//! - `sync`: tokio's internal mutexes, whose holders are not preempted.

#![allow(dead_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Once;

/// The version of [`Table`] that this file was written for.
const VERSION: u32 = 1;

/// Polls a task once. Returns 1 if it is complete: then it is not woken again, and released at some time. Else 0, also
/// where that it is complete is not known yet; the release says so then.
pub(crate) type Poll = extern "C-unwind" fn(data: *mut c_void) -> i32;

/// The scheduler: what `heddle_async` is.
#[repr(C)]
pub(crate) struct Table {
    version: u32,
    /// Creates a task that is not scheduled yet. Each wake is followed by one `poll(data)`; two polls of a task never
    /// overlap. Returns its handle, or null if there is no memory.
    pub(crate) create: extern "C" fn(poll: Poll, data: *mut c_void) -> *mut c_void,
    /// Wakes it: it is polled once more. Any thread may call this, during a poll of the task too. `by_itself` is 1 if
    /// the wake came during a poll and is passed on at its end (the task yields), else 0.
    pub(crate) wake: extern "C" fn(handle: *mut c_void, by_itself: i32),
    /// Ends the use of the handle. No wake is outstanding then, and none overlaps with this call. Any thread may call
    /// it, in and during the task's last poll too; the task need not have been polled at all.
    pub(crate) release: extern "C" fn(handle: *mut c_void),
    /// Begins a section in which the calling thread is not preempted. Sections nest. May be null, as the next.
    no_preempt_begin: Option<extern "C" fn()>,
    /// Ends it.
    no_preempt_end: Option<extern "C" fn()>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Returns the scheduler, if tasks go to one.
#[inline]
pub(crate) fn table() -> Option<&'static Table> {
    // SAFETY: the pointer is null, or `find` returned it.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Looks for the scheduler, once. Called before a multi-thread runtime is made.
pub(crate) fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let is_wanted =
            std::env::var_os("HEDDLE_TOKIO").is_some_and(|value| !value.is_empty() && value != "0");
        if is_wanted {
            TABLE.store(find(), Ordering::Release);
        }
    });
}

/// Returns the table, or null if there is none of this version.
#[cfg(target_os = "linux")]
fn find() -> *mut Table {
    use std::ffi::c_char;

    extern "C" {
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlerror() -> *const c_char;
    }
    /// `RTLD_DEFAULT`: the program and all libraries that it was started with.
    const EVERYWHERE: *mut c_void = ptr::null_mut();

    // SAFETY: the name is a C string, and `dlerror` only forgets the message about a symbol that is missing.
    let table = unsafe {
        let symbol = dlsym(EVERYWHERE, b"heddle_async\0".as_ptr().cast());
        dlerror();
        symbol.cast::<Table>()
    };
    if table.is_null() {
        return table;
    }
    // SAFETY: the symbol is Heddle's, and every version of the table begins with its number. It is in a library that is
    // never unloaded.
    let version = unsafe { (*table).version };
    if version != VERSION {
        eprintln!(
            "heddle: tasks stay with tokio: this program's tokio knows version {VERSION} of Heddle's interface, and \
             Heddle here has version {version}; build the program again with this Heddle's `heddle cargo --tokio`"
        );
        return ptr::null_mut();
    }
    table
}

#[cfg(not(target_os = "linux"))]
fn find() -> *mut Table {
    ptr::null_mut()
}

/// A section in which the calling thread is not preempted.
#[derive(Debug)]
pub(crate) struct NoPreempt(Option<extern "C" fn()>);

impl NoPreempt {
    #[inline]
    pub(crate) fn begin() -> NoPreempt {
        let functions = table().and_then(|table| table.no_preempt_begin.zip(table.no_preempt_end));
        // The end is kept: the table may be found between the two.
        NoPreempt(functions.map(|(begin, end)| {
            begin();
            end
        }))
    }
}

impl Drop for NoPreempt {
    #[inline]
    fn drop(&mut self) {
        if let Some(end) = self.0 {
            end();
        }
    }
}
