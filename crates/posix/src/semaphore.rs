//! Semaphores.
//!
//! As in glibc, eight bytes hold the value and, above 32 bits, the number of waiters. A waiter is counted from before
//! it sleeps until it has taken one or gives up, so a post that finds no waiter counted is one operation. A post
//! touches the object no more after that operation: a waiter may have freed it.

use crate::cancel::{self, Attended};
use crate::clock;
use crate::errno;
use crate::mutex::failed_to_take;
use crate::real::real;
use crate::wait::{self, Attend, For, Limit, Outcome};
use heddle_core::Ns;
use libc::{clockid_t, sem_t, timespec};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

const SEM_VALUE_MAX: u32 = i32::MAX as u32;

/// One waiter.
const WAITER: u64 = 1 << 32;

/// glibc's object.
#[repr(C)]
struct Semaphore {
    state: AtomicU64,
    /// 0, or 128 if processes share it.
    shared: c_int,
}

const _: () = assert!(size_of::<Semaphore>() <= size_of::<sem_t>());

fn value(state: u64) -> u32 {
    state as u32
}

impl Semaphore {
    /// Returns the semaphore and whether it is ours alone. If not, processes share it, and the C library's functions
    /// wait and wake. The format is the same.
    ///
    /// # Safety
    /// `sem` is initialised.
    #[inline]
    unsafe fn of<'a>(sem: *mut sem_t) -> (&'a Semaphore, bool) {
        // SAFETY: the layouts agree; the words are used atomically by everybody.
        let sem = unsafe { &*sem.cast::<Semaphore>() };
        (sem, sem.shared == 0)
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Takes one if there is one, for a thread that is counted as `waiting` ([`WAITER`] or 0).
    #[inline]
    fn take(&self, waiting: u64) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while value(state) > 0 {
            let next = state - 1 - waiting;
            let (ok, err) = (Ordering::SeqCst, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, next, ok, err) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Waits for one until `deadline` and takes it.
    ///
    /// # Errors
    /// ETIMEDOUT, EINTR.
    #[cold]
    fn take_slowly(&self, deadline: Option<Ns>) -> Result<(), c_int> {
        let limit = Limit { deadline, attend: Attend::Cancel };
        self.state.fetch_add(WAITER, Ordering::SeqCst);
        loop {
            if self.take(WAITER) {
                return Ok(());
            }
            let is_empty = || value(self.state.load(Ordering::SeqCst)) == 0;
            match wait::wait(self.key(), u32::MAX, For::Event, limit, is_empty) {
                Outcome::Woken | Outcome::Changed => {}
                Outcome::TimedOut => {
                    self.state.fetch_sub(WAITER, Ordering::SeqCst);
                    return Err(libc::ETIMEDOUT);
                }
                Outcome::Interrupted => {
                    // It may not come back, or find the semaphore gone.
                    self.state.fetch_sub(WAITER, Ordering::SeqCst);
                    if was_interrupted(deadline.is_some()) {
                        return Err(libc::EINTR);
                    }
                    self.state.fetch_add(WAITER, Ordering::SeqCst);
                }
            }
        }
    }
}

/// Does what is asked of the calling thread. Returns whether its wait ends, as it does in the kernel, which cannot
/// restart one with a time.
fn was_interrupted(has_time: bool) -> bool {
    match cancel::attend(Attend::Cancel) {
        Attended::Interrupt => true,
        Attended::Restart => has_time,
        Attended::Nothing => false,
    }
}

/// Calls the C library's function that waits for a semaphore of several processes. A preemption does not end it.
#[cold]
fn wait_in_kernel(has_time: bool, wait: impl Fn() -> c_int) -> c_int {
    loop {
        let result = heddle_rt::blocking(&wait);
        if result == 0 || errno::get() != libc::EINTR {
            return result;
        }
        if was_interrupted(has_time) {
            return errno::fail(libc::EINTR);
        }
    }
}

fn result(result: Result<(), c_int>) -> c_int {
    result.map_or_else(errno::fail, |()| 0)
}

/// POSIX's `sem_init`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_init(sem: *mut sem_t, shared: c_int, value: c_uint) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe { real!(sem_init(sem: *mut sem_t, shared: c_int, value: c_uint) -> c_int) }
}

/// POSIX's `sem_destroy`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_destroy(sem: *mut sem_t) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe { real!(sem_destroy(sem: *mut sem_t) -> c_int) }
}

/// POSIX's `sem_getvalue`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_getvalue(sem: *mut sem_t, at: *mut c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        let (sem, _) = Semaphore::of(sem);
        at.write(value(sem.state.load(Ordering::SeqCst)) as c_int);
    }
    0
}

/// POSIX's `sem_trywait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_trywait(sem: *mut sem_t) -> c_int {
    // SAFETY: the caller's contract.
    let (sem, _) = unsafe { Semaphore::of(sem) };
    if sem.take(0) {
        return 0;
    }
    failed_to_take(sem.key());
    errno::fail(libc::EAGAIN)
}

/// POSIX's `sem_post`. May be called by a signal's handler.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(sem: *mut sem_t) -> c_int {
    // SAFETY: the caller's contract.
    let (own, is_ours) = unsafe { Semaphore::of(sem) };
    if !is_ours {
        // SAFETY: the function has this type; the caller's contract.
        return unsafe { real!(sem_post(sem: *mut sem_t) -> c_int) };
    }
    let key = own.key();
    let mut state = own.state.load(Ordering::Relaxed);
    loop {
        if value(state) == SEM_VALUE_MAX {
            return errno::fail(libc::EOVERFLOW);
        }
        let (ok, err) = (Ordering::SeqCst, Ordering::Relaxed);
        match own.state.compare_exchange_weak(state, state + 1, ok, err) {
            Ok(_) => break,
            Err(now) => state = now,
        }
    }
    if state >= WAITER {
        wake_one(key);
    }
    0
}

/// Out of line: a post that wakes no thread needs few registers.
#[inline(never)]
fn wake_one(key: usize) {
    wait::wake(key, 1, u32::MAX);
}

/// POSIX's `sem_wait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sem_wait(sem: *mut sem_t) -> c_int {
    cancel::point();
    // SAFETY: the caller's contract.
    let (own, is_ours) = unsafe { Semaphore::of(sem) };
    if own.take(0) {
        return 0;
    }
    if is_ours {
        return result(own.take_slowly(None));
    }
    // SAFETY: the function has this type; the caller's contract.
    wait_in_kernel(false, || unsafe { real!(sem_wait(sem: *mut sem_t) -> c_int) })
}

/// glibc's `sem_clockwait`.
///
/// # Safety
/// glibc's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sem_clockwait(
    sem: *mut sem_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's contract.
    let (own, is_ours) = unsafe { Semaphore::of(sem) };
    if own.take(0) {
        return 0;
    }
    if is_ours {
        // SAFETY: the caller's contract.
        let deadline = clock::deadline(clock, unsafe { &*time });
        return result(deadline.and_then(|deadline| own.take_slowly(Some(deadline))));
    }
    // SAFETY: the function has this type; the caller's contract.
    wait_in_kernel(true, || unsafe {
        real!(sem_clockwait(
            sem: *mut sem_t,
            clock: clockid_t,
            time: *const timespec,
        ) -> c_int)
    })
}

/// POSIX's `sem_timedwait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sem_timedwait(sem: *mut sem_t, time: *const timespec) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { sem_clockwait(sem, libc::CLOCK_REALTIME, time) }
}
