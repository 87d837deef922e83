//! Read-write locks.
//!
//! The first eight bytes of the program's object hold who has the lock and who wants it:
//!
//! | bits | |
//! |---|---|
//! | 0 | a writer has it |
//! | 1 to 21 | the number of readers that have it |
//! | 22 to 42 | the number of writers that wait for it, asleep or on their way |
//! | 43 to 63 | the number of readers that wait for it |
//!
//! So a release sees in one operation whether anybody waits, and touches the object no more: its owner may free it. A
//! waiter is counted from before it sleeps until it has the lock or gives up; taking the lock and no longer being
//! counted are one step. A reader is kept out by a writer; a writer by a writer and by readers. Beyond that, the kind
//! decides: usually a writer is also kept out by readers that *wait* (else it would take the lock again before the
//! readers that it woke could run), and with `PREFER_WRITER_NONRECURSIVE` a reader by writers that wait. A waiter that
//! gives up may have been what kept others out, so it wakes them as a release does ([`wake_unblocked`]).
//!
//! Readers sleep for the object's address and writers for the next word's.

use crate::cancel;
use crate::clock;
use crate::mutex::{failed_to_take, own_tid};
use crate::real::real;
use crate::wait::{self, Attend, For, Limit, Outcome};
use libc::{clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const WRITER: u64 = 1;
const READER: u64 = 1 << 1;
const WAITING_WRITER: u64 = 1 << 22;
const WAITING_READER: u64 = 1 << 43;
const READERS: u64 = WAITING_WRITER - READER;
const WAITING_WRITERS: u64 = WAITING_READER - WAITING_WRITER;
const WAITING_READERS: u64 = !0 << 43;

/// glibc's `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`. glibc treats `PTHREAD_RWLOCK_PREFER_WRITER_NP` as readers
/// first.
const PREFER_WRITER_NONRECURSIVE: c_uint = 2;

/// glibc's object. `state` stands where it keeps its own; all zero is an initialised lock.
#[repr(C)]
struct RwLock {
    state: AtomicU64,
    _futexes_and_padding: [u32; 4],
    /// The number of the thread that has it as a writer.
    writer: AtomicU32,
    shared: c_int,
    _elision_and_padding: [u64; 2],
    kind: c_uint,
}

const _: () = assert!(size_of::<RwLock>() == size_of::<pthread_rwlock_t>());

/// How a thread wants the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
}

impl Mode {
    /// What a holder adds to the state.
    fn holds(self) -> u64 {
        if self == Mode::Read { READER } else { WRITER }
    }

    /// What a waiter adds to the state.
    fn waits(self) -> u64 {
        if self == Mode::Read { WAITING_READER } else { WAITING_WRITER }
    }

    /// Returns the address for which those sleep that want the lock `at` in this mode.
    fn key(self, at: usize) -> usize {
        if self == Mode::Read { at } else { at + 4 }
    }

    /// Returns whether a thread that wants a lock of this kind must wait.
    #[inline]
    fn is_blocked(self, kind: c_uint, state: u64) -> bool {
        let obstacles = match (self, kind) {
            (Mode::Read, PREFER_WRITER_NONRECURSIVE) => WRITER | WAITING_WRITERS,
            (Mode::Read, _) => WRITER,
            (Mode::Write, PREFER_WRITER_NONRECURSIVE) => WRITER | READERS,
            (Mode::Write, _) => WRITER | READERS | WAITING_READERS,
        };
        state & obstacles != 0
    }
}

/// Wakes those whom `state` no longer keeps out of the lock `at`: all readers, or one writer. The lock itself may be
/// gone.
#[cold]
fn wake_unblocked(at: usize, kind: c_uint, state: u64) {
    if state & WAITING_READERS != 0 && !Mode::Read.is_blocked(kind, state) {
        wait::wake(Mode::Read.key(at), usize::MAX, u32::MAX);
    } else if state & WAITING_WRITERS != 0 && !Mode::Write.is_blocked(kind, state) {
        wait::wake(Mode::Write.key(at), 1, u32::MAX);
    }
}

impl RwLock {
    /// Returns the lock, unless processes share it: then it is the C library's.
    ///
    /// # Safety
    /// `lock` is initialised.
    #[inline]
    unsafe fn own<'a>(lock: *mut pthread_rwlock_t) -> Option<&'a RwLock> {
        // SAFETY: the layouts agree, and only this library uses a lock that processes do not share.
        let lock = unsafe { &*lock.cast::<RwLock>() };
        (lock.shared == 0).then_some(lock)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Takes the lock if nothing is in the way, for a thread that has added `waits` to the state.
    ///
    /// # Errors
    /// EBUSY; EAGAIN if there cannot be more readers.
    #[inline]
    fn take(&self, mode: Mode, waits: u64) -> Result<(), c_int> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if mode.is_blocked(self.kind, state) {
                return Err(libc::EBUSY);
            }
            if mode == Mode::Read && state & READERS == READERS {
                return Err(libc::EAGAIN);
            }
            let next = state + mode.holds() - waits;
            let (ok, err) = (Ordering::SeqCst, Ordering::Relaxed);
            match self.state.compare_exchange_weak(state, next, ok, err) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if mode == Mode::Write {
            self.writer.store(own_tid(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the lock if that needs no wait. Returns an error number.
    #[inline]
    fn try_lock(&self, mode: Mode) -> c_int {
        self.take(mode, 0).map_or_else(
            |error| {
                failed_to_take(self.address());
                error
            },
            |()| 0,
        )
    }

    /// Takes the lock, by `time` if there is one. Returns an error number.
    #[inline]
    fn lock(&self, mode: Mode, time: Option<(clockid_t, &timespec)>) -> c_int {
        match self.take(mode, 0) {
            Ok(()) => 0,
            Err(libc::EBUSY) => self.lock_slowly(mode, time),
            Err(error) => error,
        }
    }

    #[cold]
    fn lock_slowly(&self, mode: Mode, time: Option<(clockid_t, &timespec)>) -> c_int {
        let deadline = match time.map(|(clock, time)| clock::deadline(clock, time)).transpose() {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        if self.state.load(Ordering::Relaxed) & WRITER != 0
            && self.writer.load(Ordering::Relaxed) == own_tid()
        {
            return libc::EDEADLK;
        }
        let limit = Limit { deadline, attend: Attend::Signals };
        let waits = mode.waits();
        self.state.fetch_add(waits, Ordering::SeqCst);
        let error = loop {
            match self.take(mode, waits) {
                Ok(()) => return 0,
                Err(libc::EBUSY) => {}
                Err(error) => break error,
            }
            let is_blocked = || mode.is_blocked(self.kind, self.state.load(Ordering::SeqCst));
            match wait::wait(mode.key(self.address()), u32::MAX, For::Lock, limit, is_blocked) {
                Outcome::Woken | Outcome::Changed => {}
                Outcome::TimedOut => break libc::ETIMEDOUT,
                Outcome::Interrupted => {
                    let _ = cancel::attend(Attend::Signals);
                }
            }
        };
        let kind = self.kind;
        let left = self.state.fetch_sub(waits, Ordering::SeqCst) - waits;
        wake_unblocked(self.address(), kind, left);
        error
    }

    /// Gives the lock up. Returns an error number.
    #[inline]
    fn unlock(&self) -> c_int {
        let state = self.state.load(Ordering::Relaxed);
        let held = if state & WRITER != 0 {
            self.writer.store(0, Ordering::Relaxed);
            WRITER
        } else if state & READERS != 0 {
            READER
        } else {
            return libc::EPERM;
        };
        let kind = self.kind;
        let left = self.state.fetch_sub(held, Ordering::SeqCst) - held;
        // A reader that leaves while others still hold the lock wakes no thread.
        if left >= WAITING_WRITER && left & READERS == 0 {
            wake_unblocked(self.address(), kind, left);
        }
        0
    }
}

/// Returns the time, if a lock can be waited for until then.
///
/// # Errors
/// EINVAL, as glibc does even if the lock is free.
///
/// # Safety
/// `time` is null or valid.
unsafe fn checked<'a>(
    clock: clockid_t,
    time: *const timespec,
) -> Result<Option<(clockid_t, &'a timespec)>, c_int> {
    // SAFETY: the caller's contract.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    if !matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
        || !(0..1_000_000_000).contains(&time.tv_nsec)
    {
        return Err(libc::EINVAL);
    }
    Ok(Some((clock, time)))
}

/// Takes the lock `at` by `time`. Returns an error number, or `None` if it is the C library's.
///
/// # Safety
/// POSIX's contract.
unsafe fn lock_until(
    at: *mut pthread_rwlock_t,
    mode: Mode,
    clock: clockid_t,
    time: *const timespec,
) -> Option<c_int> {
    // SAFETY: the caller's contract.
    unsafe {
        let lock = RwLock::own(at)?;
        Some(match checked(clock, time) {
            Ok(time) => lock.lock(mode, time),
            Err(error) => error,
        })
    }
}

/// POSIX's `pthread_rwlock_init`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_init(
    lock: *mut pthread_rwlock_t,
    attr: *const pthread_rwlockattr_t,
) -> c_int {
    // The C library's writes zeros, the kind, and whether processes share the lock.
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        real!(pthread_rwlock_init(
            lock: *mut pthread_rwlock_t,
            attr: *const pthread_rwlockattr_t,
        ) -> c_int)
    }
}

/// POSIX's `pthread_rwlock_destroy`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_destroy(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the function has this type; the caller's contract. It leaves the object as it is.
    unsafe { real!(pthread_rwlock_destroy(lock: *mut pthread_rwlock_t) -> c_int) }
}

/// Calls the C library's function for a lock that processes share, which may block. Out of line, as it needs more
/// registers than the rest.
#[cold]
#[inline(never)]
fn in_kernel(blocks: bool, call: impl FnOnce() -> c_int) -> c_int {
    if blocks { heddle_rt::blocking(call) } else { call() }
}

/// Defines functions that take a lock or give it up: what it does with one of ours, and whether the C library's
/// function, which takes one that processes share, may block.
macro_rules! simple {
    ($($name:ident: |$lock:ident| $own:expr, blocking $blocks:literal;)*) => {$(
        #[doc = concat!("POSIX's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// POSIX's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: *mut pthread_rwlock_t) -> c_int {
            // SAFETY: the caller's contract.
            if let Some($lock) = unsafe { RwLock::own(lock) } {
                return $own;
            }
            // SAFETY: the function has this type; the caller's contract.
            in_kernel($blocks, || unsafe { real!($name(lock: *mut pthread_rwlock_t) -> c_int) })
        }
    )*};
}

simple! {
    pthread_rwlock_rdlock: |lock| lock.lock(Mode::Read, None), blocking true;
    pthread_rwlock_wrlock: |lock| lock.lock(Mode::Write, None), blocking true;
    pthread_rwlock_tryrdlock: |lock| lock.try_lock(Mode::Read), blocking false;
    pthread_rwlock_trywrlock: |lock| lock.try_lock(Mode::Write), blocking false;
    pthread_rwlock_unlock: |lock| lock.unlock(), blocking false;
}

/// Defines the functions that take a lock by a time.
macro_rules! timed {
    ($($timed:ident, $clocked:ident: $mode:expr;)*) => {$(
        #[doc = concat!("POSIX's `", stringify!($timed), "`.")]
        ///
        /// # Safety
        /// POSIX's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $timed(
            lock: *mut pthread_rwlock_t,
            time: *const timespec,
        ) -> c_int {
            // SAFETY: the caller's contract.
            unsafe { $clocked(lock, libc::CLOCK_REALTIME, time) }
        }

        #[doc = concat!("glibc's `", stringify!($clocked), "`.")]
        ///
        /// # Safety
        /// glibc's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $clocked(
            lock: *mut pthread_rwlock_t,
            clock: clockid_t,
            time: *const timespec,
        ) -> c_int {
            // SAFETY: the caller's contract.
            if let Some(done) = unsafe { lock_until(lock, $mode, clock, time) } {
                return done;
            }
            // SAFETY: the function has this type; the caller's contract.
            in_kernel(true, || unsafe {
                real!($clocked(
                    lock: *mut pthread_rwlock_t,
                    clock: clockid_t,
                    time: *const timespec,
                ) -> c_int)
            })
        }
    )*};
}

timed! {
    pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock: Mode::Read;
    pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock: Mode::Write;
}
