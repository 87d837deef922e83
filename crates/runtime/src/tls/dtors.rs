//! Destructors of thread-local variables, run at the end of the task that registered them.
//!
//! Rust's `thread_local!` and C++'s `thread_local` register with `__cxa_thread_atexit_impl`, C with
//! `pthread_key_create`. This crate defines both symbols: within a task it keeps the list itself, elsewhere it passes
//! the call on, and so it does in an adopted task, whose thread the C library ends. It also defines
//! `pthread_setspecific`, to know which tasks have key values to clear.

use crate::libc_fn::LibcFn;
use crate::task::{Destructor, Task};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

type Dtor = unsafe extern "C" fn(*mut c_void);

/// Registers a destructor for the calling task, or for the thread outside tasks.
///
/// # Safety
/// The C++ ABI's contract: `run(object)` may be called when the thread, here the task, ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    run: Dtor,
    object: *mut c_void,
    dso: *mut c_void,
) -> c_int {
    if let Some(task) = Task::current().filter(|task| !task.is_adopted()) {
        task.dtors().push(Destructor { run, object });
        return 0;
    }
    static REAL: LibcFn = LibcFn::new(c"__cxa_thread_atexit_impl");
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(Dtor, *mut c_void, *mut c_void) -> c_int =
            std::mem::transmute(REAL.address());
        real(run, object, dso)
    }
}

/// The number of keys in glibc.
const KEYS: usize = 1024;

/// Destructor of each key, 1 for a key without.
static KEY_DTORS: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];
/// One more than the largest key ever created.
static KEYS_END: AtomicUsize = AtomicUsize::new(0);

/// Creates a key and records its destructor.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_create(
    key: *mut libc::pthread_key_t,
    dtor: Option<Dtor>,
) -> c_int {
    static REAL: LibcFn = LibcFn::new(c"pthread_key_create");
    // SAFETY: the symbol has this type; the caller's contract; on success `key` was written.
    unsafe {
        let real: unsafe extern "C" fn(*mut libc::pthread_key_t, Option<Dtor>) -> c_int =
            std::mem::transmute(REAL.address());
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
    static REAL: LibcFn = LibcFn::new(c"pthread_key_delete");
    if let Some(dtor) = KEY_DTORS.get(key as usize) {
        dtor.store(0, Ordering::Release);
    }
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(libc::pthread_key_t) -> c_int =
            std::mem::transmute(REAL.address());
        real(key)
    }
}

/// Sets the value of `key`, and records that the calling task has one to clear at its end.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setspecific(
    key: libc::pthread_key_t,
    value: *const c_void,
) -> c_int {
    static REAL: LibcFn = LibcFn::new(c"pthread_setspecific");
    if !value.is_null()
        && let Some(task) = Task::current()
    {
        task.has_keys().set(true);
    }
    // SAFETY: the symbol has this type; the caller's contract.
    unsafe {
        let real: unsafe extern "C" fn(libc::pthread_key_t, *const c_void) -> c_int =
            std::mem::transmute(REAL.address());
        real(key, value)
    }
}

/// Rounds over the keys, the number POSIX requires: destructors that keep setting their key must not loop forever.
const KEY_ROUNDS: usize = 4;

/// Runs the calling task's registered destructors, newest first, until none is left: a destructor may register others.
/// The next task on the block finds no destructor and no key value.
pub(crate) fn run(task: &Task) {
    run_listed(task);
    for _ in 0..KEY_ROUNDS {
        if !task.has_keys().replace(false) {
            return;
        }
        run_keys();
        run_listed(task);
    }
    if task.has_keys().replace(false) {
        take_values(|_, _| ());
    }
}

/// Runs the listed destructors until the list is empty.
fn run_listed(task: &Task) {
    while let Some(Destructor { run, object }) = task.dtors().pop() {
        // SAFETY: registered for this task, run once, in this task.
        unsafe { run(object) };
    }
}

/// Clears every key's value in the calling task and runs its destructor.
fn run_keys() {
    // SAFETY: the destructor was given for this key's values and is called once for this one.
    take_values(|dtor, value| unsafe { dtor(value) });
}

/// Clears every key's value in the calling task; passes those whose key has a destructor to `taken`.
fn take_values(mut taken: impl FnMut(Dtor, *mut c_void)) {
    let end = KEYS_END.load(Ordering::Acquire);
    for (key, dtor) in KEY_DTORS.iter().enumerate().take(end) {
        let dtor = dtor.load(Ordering::Acquire);
        if dtor == 0 {
            continue;
        }
        let key = key as libc::pthread_key_t;
        // SAFETY: an existing key; what is above 1 came from a destructor.
        unsafe {
            let value = libc::pthread_getspecific(key);
            if value.is_null() {
                continue;
            }
            libc::pthread_setspecific(key, std::ptr::null());
            if dtor > 1 {
                taken(std::mem::transmute::<usize, Dtor>(dtor), value);
            }
        }
    }
}
