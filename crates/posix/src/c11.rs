//! The threads interface of C11, over the same code. glibc lays `mtx_t` and `cnd_t` out as the POSIX types.

use crate::cond::{self, Until};
use crate::mutex::{Mutex, Patience};
use crate::thread;
use heddle_rt::raw::Entry;
use libc::{pthread_cond_t, pthread_mutex_t, pthread_t, timespec};
use std::ffi::{c_int, c_void};
use std::ptr;

const THRD_SUCCESS: c_int = 0;
const THRD_BUSY: c_int = 1;
const THRD_ERROR: c_int = 2;
const THRD_NOMEM: c_int = 3;
const THRD_TIMEDOUT: c_int = 4;

const MTX_RECURSIVE: c_int = 1;

type MtxT = pthread_mutex_t;
type CndT = pthread_cond_t;
/// A C11 thread's first function.
type Start = extern "C-unwind" fn(*mut c_void) -> c_int;

/// Converts an error number.
fn result_of(error: c_int) -> c_int {
    match error {
        0 => THRD_SUCCESS,
        libc::ENOMEM => THRD_NOMEM,
        libc::ETIMEDOUT => THRD_TIMEDOUT,
        libc::EBUSY => THRD_BUSY,
        _ => THRD_ERROR,
    }
}

/// C11's `mtx_init`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_init(mutex: *mut MtxT, kind: c_int) -> c_int {
    let posix = match kind & MTX_RECURSIVE {
        0 => libc::PTHREAD_MUTEX_NORMAL,
        _ => libc::PTHREAD_MUTEX_RECURSIVE,
    };
    // SAFETY: the caller's contract; an attribute that is initialised before use.
    unsafe {
        let mut attr = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attr);
        libc::pthread_mutexattr_settype(&mut attr, posix);
        result_of(libc::pthread_mutex_init(mutex, &attr))
    }
}

/// C11's `mtx_lock`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_lock(mutex: *mut MtxT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { Mutex::of(mutex) }.lock(Patience::Endless))
}

/// C11's `mtx_trylock`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_trylock(mutex: *mut MtxT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { Mutex::of(mutex) }.try_lock())
}

/// C11's `mtx_timedlock`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_timedlock(mutex: *mut MtxT, time: *const timespec) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { Mutex::of(mutex).lock(Patience::Until(libc::CLOCK_REALTIME, &*time)) })
}

/// C11's `mtx_unlock`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_unlock(mutex: *mut MtxT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { Mutex::of(mutex) }.unlock())
}

/// C11's `mtx_destroy`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtx_destroy(mutex: *mut MtxT) {
    // SAFETY: the caller's contract.
    unsafe { libc::pthread_mutex_destroy(mutex) };
}

/// C11's `cnd_init`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_init(cond: *mut CndT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { cond::pthread_cond_init(cond, ptr::null()) })
}

/// C11's `cnd_wait`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cnd_wait(cond: *mut CndT, mutex: *mut MtxT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { cond::wait(cond, mutex, None) })
}

/// C11's `cnd_timedwait`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cnd_timedwait(
    cond: *mut CndT,
    mutex: *mut MtxT,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let until = Until { clock: Some(libc::CLOCK_REALTIME), time: &*time };
        result_of(cond::wait(cond, mutex, Some(until)))
    }
}

/// C11's `cnd_signal`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_signal(cond: *mut CndT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { cond::pthread_cond_signal(cond) })
}

/// C11's `cnd_broadcast`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_broadcast(cond: *mut CndT) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { cond::pthread_cond_broadcast(cond) })
}

/// C11's `cnd_destroy`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnd_destroy(cond: *mut CndT) {
    // SAFETY: the caller's contract.
    unsafe { cond::pthread_cond_destroy(cond) };
}

/// What a new thread finds. The function comes first: [`crate::classes`] looks at it.
#[repr(C)]
struct Call {
    start: Start,
    argument: *mut c_void,
}

/// The first function of a C11 thread, as POSIX has it.
extern "C-unwind" fn enter(call: *mut c_void) -> *mut c_void {
    // SAFETY: `thrd_create` made it, for this thread alone.
    let Call { start, argument } = *unsafe { Box::from_raw(call.cast::<Call>()) };
    start(argument) as usize as *mut c_void
}

/// C11's `thrd_create`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let call = Box::into_raw(Box::new(Call { start, argument }));
    type Enter = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the same type but for what it may do: the frame that calls it expects to be unwound to.
    let entry = unsafe { std::mem::transmute::<Enter, Entry>(enter) };
    // SAFETY: the caller's contract.
    let error = unsafe { thread::create(thread, ptr::null(), entry, call.cast()) };
    if error != 0 {
        // SAFETY: no thread has been made that takes it.
        drop(unsafe { Box::from_raw(call) });
    }
    result_of(error)
}

/// C11's `thrd_join`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_join(thread: pthread_t, result: *mut c_int) -> c_int {
    let mut value = ptr::null_mut();
    // SAFETY: the caller's contract.
    let error = unsafe { thread::pthread_join(thread, &mut value) };
    if error == 0 && !result.is_null() {
        // SAFETY: the caller's memory.
        unsafe { result.write(value as usize as c_int) };
    }
    result_of(error)
}

/// C11's `thrd_detach`.
///
/// # Safety
/// C11's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_detach(thread: pthread_t) -> c_int {
    // SAFETY: the caller's contract.
    result_of(unsafe { thread::pthread_detach(thread) })
}

/// C11's `thrd_exit`.
///
/// # Safety
/// C11's contract: the caller's frames may be left.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_exit(result: c_int) -> ! {
    thread::exit(result as usize as *mut c_void)
}
