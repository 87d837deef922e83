//! Destructors of thread-local variables, run at the end of the task that registered them.
//!
//! Rust's `thread_local!` and C++'s `thread_local` register with `__cxa_thread_atexit_impl`, C with `pthread_key_create`.
//! This crate defines both symbols: within a task it keeps the list itself, elsewhere it passes the call on.

use crate::task::Task;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

type Dtor = unsafe extern "C" fn(*mut c_void);

/// One registered destructor.
pub(crate) struct Entry {
    run: Dtor,
    object: *mut c_void,
}

fn next(name: &std::ffi::CStr, cache: &AtomicUsize) -> usize {
    let cached = cache.load(Ordering::Relaxed);
    if cached != 0 {
        return cached;
    }
    // SAFETY: a lookup by name. The C library has had these symbols for ever.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    assert_ne!(found, 0, "the C library has no {name:?}");
    cache.store(found, Ordering::Relaxed);
    found
}

/// Registers a destructor for the calling task, or thread where there is no task.
///
/// # Safety
/// The C++ ABI's contract: `run(object)` may be called when the thread, here the task, ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    run: Dtor,
    object: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    if let Some(task) = Task::current() {
        task.dtors().push(Entry { run, object });
        return 0;
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let real = next(c"__cxa_thread_atexit_impl", &REAL);
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(Dtor, *mut c_void, *mut c_void) -> c_int =
            std::mem::transmute(real);
        real(run, object, dso)
    }
}

/// As many keys as glibc has.
const KEYS: usize = 1024;

/// Destructor of each key, 1 for a key without.
static KEY_DTORS: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];
/// One more than the largest key ever made.
static KEYS_END: AtomicUsize = AtomicUsize::new(0);

/// Makes a key and remembers its destructor.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_create(
    key: *mut libc::pthread_key_t,
    dtor: Option<Dtor>,
) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let real = next(c"pthread_key_create", &REAL);
    // SAFETY: the symbol has this type; the caller's contract; on success `key` was written.
    unsafe {
        let real: unsafe extern "C" fn(*mut libc::pthread_key_t, Option<Dtor>) -> c_int =
            std::mem::transmute(real);
        let result = real(key, dtor);
        if result == 0 && (*key as usize) < KEYS {
            KEY_DTORS[*key as usize].store(dtor.map_or(1, |d| d as usize), Ordering::Release);
            KEYS_END.fetch_max(*key as usize + 1, Ordering::Release);
        }
        result
    }
}

/// Deletes a key.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_delete(key: libc::pthread_key_t) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    if let Some(dtor) = KEY_DTORS.get(key as usize) {
        dtor.store(0, Ordering::Release);
    }
    let real = next(c"pthread_key_delete", &REAL);
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(libc::pthread_key_t) -> c_int = std::mem::transmute(real);
        real(key)
    }
}

/// Runs what the calling task has registered, newest first, until nothing is left: a destructor may register others.
pub(crate) fn run(task: &Task) {
    // POSIX asks for at least four rounds over the keys.
    for _ in 0..4 {
        while let Some(Entry { run, object }) = task.dtors().pop() {
            // SAFETY: registered for this task, run once, in this task.
            unsafe { run(object) };
        }
        if !run_keys() {
            break;
        }
    }
}

/// Clears every key's value in the calling task; whether a destructor ran.
fn run_keys() -> bool {
    let mut ran = false;
    let end = KEYS_END.load(Ordering::Acquire);
    for (key, dtor) in KEY_DTORS.iter().enumerate().take(end) {
        let dtor = dtor.load(Ordering::Acquire);
        if dtor == 0 {
            continue;
        }
        // SAFETY: an existing key; the destructor was given for its values and is called once for this one.
        unsafe {
            let value = libc::pthread_getspecific(key as libc::pthread_key_t);
            if value.is_null() {
                continue;
            }
            libc::pthread_setspecific(key as libc::pthread_key_t, std::ptr::null());
            if dtor > 1 {
                std::mem::transmute::<usize, Dtor>(dtor)(value);
                ran = true;
            }
        }
    }
    ran
}
