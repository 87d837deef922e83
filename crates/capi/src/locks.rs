//! Mutexes and condition variables of `include/heddle/thread.h`: those of [`heddle_rt::sync`] in the program's memory.
//!
//! All-zero bytes, which `HD_MUTEX_INIT` and `HD_COND_INIT` are, are a free mutex and a condition variable without
//! waiters: their words count from 0, and their lists are null pointers. Neither owns anything, so there is nothing to
//! destroy.

use heddle_rt::sync::{Condvar, Mutex, MutexGuard};
use std::ffi::c_int;
use std::mem::{ManuallyDrop, forget};
use std::time::Duration;

/// `hd_mutex`.
#[repr(C)]
pub struct HdMutex([u64; 4]);

/// `hd_cond`.
#[repr(C)]
pub struct HdCond([u64; 3]);

/// Asserts that a `T` has room in an `Opaque`.
const fn fits<T, Opaque>() {
    assert!(size_of::<T>() <= size_of::<Opaque>() && align_of::<T>() <= align_of::<Opaque>());
}

const _: () = fits::<Mutex<()>, HdMutex>();
const _: () = fits::<Condvar, HdCond>();

/// # Safety
/// `at` was initialised, and lives for as long as the result is used.
unsafe fn mutex<'a>(at: *const HdMutex) -> &'a Mutex<()> {
    // SAFETY: by the caller's promise; it fits.
    unsafe { &*at.cast() }
}

/// # Safety
/// `at` was initialised, and lives for as long as the result is used.
unsafe fn cond<'a>(at: *const HdCond) -> &'a Condvar {
    // SAFETY: by the caller's promise; it fits.
    unsafe { &*at.cast() }
}

/// Returns the guard of a mutex that the caller has taken by [`hd_mutex_lock`].
///
/// # Safety
/// `at` is such a mutex.
unsafe fn held<'a>(at: *const HdMutex) -> ManuallyDrop<MutexGuard<'a, ()>> {
    // SAFETY: the caller holds it; the guard that it got was forgotten, and so is this one.
    ManuallyDrop::new(unsafe { mutex(at).make_guard_unchecked() })
}

/// See the header.
///
/// # Safety
/// `at` was initialised.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_mutex_lock(at: *mut HdMutex) {
    // SAFETY: as the caller promises.
    forget(unsafe { mutex(at) }.lock());
}

/// See the header.
///
/// # Safety
/// `at` was initialised.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_mutex_trylock(at: *mut HdMutex) -> c_int {
    // SAFETY: as the caller promises.
    c_int::from(unsafe { mutex(at) }.try_lock().map(forget).is_some())
}

/// See the header.
///
/// # Safety
/// The caller holds the mutex.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_mutex_unlock(at: *mut HdMutex) {
    // SAFETY: as the caller promises.
    unsafe { mutex(at).force_unlock() };
}

/// See the header.
///
/// # Safety
/// `at` was initialised, and the caller holds the mutex.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_cond_wait(at: *mut HdCond, mutex: *mut HdMutex) {
    // SAFETY: as the caller promises.
    unsafe { cond(at).wait(&mut held(mutex)) };
}

/// See the header.
///
/// # Safety
/// As [`hd_cond_wait`].
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_cond_wait_until(
    at: *mut HdCond,
    mutex: *mut HdMutex,
    until: u64,
) -> c_int {
    let within = Duration::from_nanos(until.saturating_sub(heddle_rt::now().0));
    // SAFETY: as the caller promises.
    c_int::from(unsafe { cond(at).wait_for(&mut held(mutex), within) })
}

/// See the header.
///
/// # Safety
/// `at` was initialised.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_cond_signal(at: *mut HdCond) {
    // SAFETY: as the caller promises.
    unsafe { cond(at) }.notify_one();
}

/// See the header.
///
/// # Safety
/// `at` was initialised.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_cond_broadcast(at: *mut HdCond) {
    // SAFETY: as the caller promises.
    unsafe { cond(at) }.notify_all();
}
