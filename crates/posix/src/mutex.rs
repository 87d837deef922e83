//! Mutexes, in glibc's format.
//!
//! The word of a mutex is 0 if it is free, 1 if it is locked, 2 if it is locked and a thread may wait; that of a
//! [`robust`] one is different. A thread that waits sets 2 and sleeps while the word is 2; an unlock sets 0, and wakes
//! one waiter if the word was 2. A thread that has waited takes the mutex with 2, as it does not know whether others
//! wait. What lies in memory that processes share is the C library's, and so its waiters are the kernel's.

mod calls;
mod own;
mod robust;

pub(crate) use own::{failed_to_take, forget_tid, own_tid};
pub(crate) use robust::{RobustList, give_robust_back, leave_robust, take_robust};

use crate::real::real;
use crate::sys::syscall;
use crate::wait::{self, For, Limit, Outcome};
use crate::{cancel, clock, start};
use heddle_rt::raw::{self, Caller};
use libc::{clockid_t, pthread_mutex_t, timespec};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The bits of `kind`. Above them are hints about elision.
mod kind {
    pub(super) const NORMAL: u32 = 0;
    pub(super) const RECURSIVE: u32 = 1;
    pub(super) const ERRORCHECK: u32 = 2;
    pub(super) const ADAPTIVE: u32 = 3;
    pub(super) const ROBUST: u32 = 16;
    pub(super) const ROBUST_LAST: u32 = ROBUST | 3;
    pub(super) const SHARED: u32 = 128;
    pub(super) const MASK: u32 = 0xff;
}

/// The bits of `kind` that hold one of the first four.
const TYPE: u32 = 3;

/// A `pthread_mutex_t` as glibc lays it out. All but `word` is the holder's, though others may read it.
#[repr(C)]
pub(crate) struct Mutex {
    word: AtomicU32,
    /// How often a recursive mutex is locked.
    count: AtomicU32,
    /// The holder's number, or 0.
    owner: AtomicU32,
    /// 1 if it is locked, and 1 for each thread that waits in a condition variable: a mutex in use is not destroyed.
    users: AtomicU32,
    kind: AtomicU32,
    _spins: AtomicU32,
    /// The holder's list of robust mutexes.
    prev: Cell<*const Mutex>,
    next: Cell<*const Mutex>,
}

const _: () = assert!(size_of::<Mutex>() == size_of::<pthread_mutex_t>());

/// How long to wait for a mutex.
#[derive(Clone, Copy)]
pub(crate) enum Patience<'a> {
    Endless,
    Until(clockid_t, &'a timespec),
}

impl Patience<'_> {
    /// # Errors
    /// EINVAL if the time makes no sense: only who must wait learns that.
    fn limit(self) -> Result<Limit, c_int> {
        match self {
            Patience::Endless => Ok(Limit::FOREVER),
            Patience::Until(clock, time) => {
                Ok(Limit { deadline: Some(clock::deadline(clock, time)?), ..Limit::FOREVER })
            }
        }
    }
}

impl Mutex {
    /// # Safety
    /// `at` points to a mutex, as POSIX requires.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(at: *mut pthread_mutex_t) -> &'a Mutex {
        // SAFETY: the layout is the same, and every field may change while it is shared.
        unsafe { &*at.cast::<Mutex>() }
    }

    fn as_ptr(&self) -> *mut pthread_mutex_t {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the address for which its waiters wait.
    #[inline]
    pub(crate) fn key(&self) -> usize {
        self.word.as_ptr() as usize
    }

    #[inline(always)]
    fn kind(&self) -> u32 {
        self.kind.load(Ordering::Relaxed) & kind::MASK
    }

    /// Takes the mark of sharing off a robust mutex, for its initialisation. glibc sets it in each of them, as the
    /// kernel wakes the waiters of its own by shared futexes. Those with the mark are left to glibc.
    fn keep_robust_private(&self) {
        if self.kind() & kind::ROBUST != 0 {
            self.kind.fetch_and(!kind::SHARED, Ordering::Relaxed);
        }
    }

    /// Returns whether it is for processes to share.
    pub(crate) fn is_shared(&self) -> bool {
        self.kind() & kind::SHARED != 0
    }

    #[inline(always)]
    fn take(&self) -> bool {
        self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn own(&self, tid: u32) {
        self.owner.store(tid, Ordering::Relaxed);
        self.add_user();
    }

    #[inline(always)]
    fn disown(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.remove_user();
    }

    #[inline(always)]
    fn add_user(&self) {
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes a user off, for the holder.
    #[inline(always)]
    pub(crate) fn remove_user(&self) {
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    fn is_own(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == own_tid()
    }

    fn count_up(&self) -> c_int {
        match self.count.load(Ordering::Relaxed).checked_add(1) {
            Some(count) => self.count.store(count, Ordering::Relaxed),
            None => return libc::EAGAIN,
        }
        0
    }

    fn count_down(&self) -> u32 {
        let count = self.count.load(Ordering::Relaxed).wrapping_sub(1);
        self.count.store(count, Ordering::Relaxed);
        count
    }

    /// Returns whether a waiter of a condition variable may be moved to the waiters for this mutex, which the caller
    /// holds: one unlock frees it, and its word is this module's.
    #[inline]
    pub(crate) fn takes_waiters(&self) -> bool {
        self.kind() <= kind::ADAPTIVE
            && (self.kind() != kind::RECURSIVE || self.count.load(Ordering::Relaxed) == 1)
    }

    /// Makes the holder wake one of those that wait. Returns whether there is a holder.
    pub(crate) fn expect_waiters(&self) -> bool {
        let mark = |word| (word != 0).then_some(2);
        self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, mark).is_ok()
    }

    /// Waits while the word is `word`.
    #[inline]
    fn sleep(&self, word: u32, limit: Limit) -> Result<(), c_int> {
        if Caller::here() == Caller::Runtime {
            self.sleep_in_runtime(word);
            return Ok(());
        }
        let is_so = || self.word.load(Ordering::SeqCst) == word;
        match wait::wait(self.key(), u32::MAX, For::Lock, limit, is_so) {
            Outcome::Woken | Outcome::Changed => {}
            Outcome::TimedOut => return Err(libc::ETIMEDOUT),
            Outcome::Interrupted => {
                cancel::attend(limit.attend);
            }
        }
        Ok(())
    }

    /// The runtime cannot be woken from the queue, so it looks again after a millisecond.
    #[cold]
    fn sleep_in_runtime(&self, word: u32) {
        let (wait, rest) = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 1_000_000);
        let rest = timespec { tv_sec: 0, tv_nsec: rest };
        // SAFETY: the word and the time are valid for the call.
        unsafe { syscall!(libc::SYS_futex, self.word.as_ptr(), wait, word, &raw const rest) };
    }

    /// Waits until the caller has taken the word.
    #[inline(never)]
    fn contend(&self, patience: Patience) -> Result<(), c_int> {
        let limit = patience.limit()?;
        while self.word.swap(2, Ordering::Acquire) != 0 {
            self.sleep(2, limit)?;
        }
        Ok(())
    }

    #[inline]
    fn take_or_contend(&self, patience: Patience) -> Result<(), c_int> {
        if self.take() { Ok(()) } else { self.contend(patience) }
    }

    /// Takes the word of an adaptive mutex, and hopes for a while that its holder runs.
    fn spin_or_contend(&self, patience: Patience) -> Result<(), c_int> {
        const ROUNDS: u32 = 100;
        for _ in 0..if others_run() { ROUNDS } else { 0 } {
            if self.word.load(Ordering::Relaxed) == 0 && self.take() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.take_or_contend(patience)
    }

    /// Releases the word and wakes a waiter. The mutex may be gone once its word is free.
    #[inline(always)]
    fn release(&self) {
        let key = self.key();
        if self.word.swap(0, Ordering::SeqCst) > 1 {
            wake_one(key);
        }
    }

    /// Locks the mutex.
    #[inline]
    pub(crate) fn lock(&self, patience: Patience) -> c_int {
        if self.kind() == kind::NORMAL && self.take() {
            self.own(own_tid());
            return 0;
        }
        self.lock_any(patience)
    }

    #[inline(never)]
    fn lock_any(&self, patience: Patience) -> c_int {
        let taken = match self.kind() {
            kind::NORMAL => self.contend(patience),
            kind::RECURSIVE if self.is_own() => return self.count_up(),
            kind::RECURSIVE => self.take_or_contend(patience),
            kind::ERRORCHECK if self.is_own() => return libc::EDEADLK,
            kind::ERRORCHECK => self.take_or_contend(patience),
            kind::ADAPTIVE => self.spin_or_contend(patience),
            kind::ROBUST..=kind::ROBUST_LAST => return robust::lock(self, patience),
            _ => return self.lock_shared(patience),
        };
        self.finish(taken)
    }

    /// Locks the mutex for a thread that was woken among its waiters. It [takes waiters](Mutex::takes_waiters), and is
    /// not held by the caller.
    pub(crate) fn lock_woken(&self) -> c_int {
        self.finish(self.contend(Patience::Endless))
    }

    #[inline]
    fn finish(&self, taken: Result<(), c_int>) -> c_int {
        match taken {
            Ok(()) => {
                self.own(own_tid());
                if self.kind() == kind::RECURSIVE {
                    self.count.store(1, Ordering::Relaxed);
                }
                0
            }
            Err(error) => error,
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> c_int {
        let taken = match self.kind() {
            kind::NORMAL | kind::ERRORCHECK | kind::ADAPTIVE => self.take(),
            kind::RECURSIVE if self.is_own() => return self.count_up(),
            kind::RECURSIVE => self.take(),
            kind::ROBUST..=kind::ROBUST_LAST => return robust::try_lock(self),
            _ => {
                let mutex = self.as_ptr();
                // SAFETY: the C library's function of this type, on a mutex; it does not wait.
                return unsafe {
                    real!(pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int)
                };
            }
        };
        if !taken {
            failed_to_take(self.key());
            return libc::EBUSY;
        }
        self.finish(Ok(()))
    }

    #[inline]
    pub(crate) fn unlock(&self) -> c_int {
        if self.kind() != kind::NORMAL {
            return self.unlock_any();
        }
        self.disown();
        self.release();
        0
    }

    #[inline(never)]
    fn unlock_any(&self) -> c_int {
        match self.kind() {
            kind::RECURSIVE | kind::ERRORCHECK if !self.is_own() => return libc::EPERM,
            kind::RECURSIVE if self.count_down() != 0 => return 0,
            kind::ROBUST..=kind::ROBUST_LAST => return robust::unlock(self),
            kind::NORMAL..=kind::ADAPTIVE => {}
            _ => {
                let mutex = self.as_ptr();
                // SAFETY: the C library's function of this type, on a mutex.
                return unsafe {
                    real!(pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int)
                };
            }
        }
        self.disown();
        self.release();
        0
    }

    /// Unlocks a mutex that [takes waiters](Mutex::takes_waiters) for a thread that will lock it again and remains one
    /// of its users until then.
    #[inline]
    pub(crate) fn unlock_as_user(&self) -> c_int {
        if matches!(self.kind(), kind::RECURSIVE | kind::ERRORCHECK) && !self.is_own() {
            return libc::EPERM;
        }
        self.owner.store(0, Ordering::Relaxed);
        self.release();
        0
    }

    /// Locks a mutex that the C library knows and this module does not.
    fn lock_shared(&self, patience: Patience) -> c_int {
        let mutex = self.as_ptr();
        // SAFETY: the C library's functions of these types, on a mutex.
        unsafe {
            match real!(pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int) {
                libc::EBUSY => {}
                result => return result,
            }
            in_kernel(|| match patience {
                Patience::Endless => {
                    real!(pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int)
                }
                Patience::Until(clock, time) => real!(pthread_mutex_clocklock(
                    mutex: *mut pthread_mutex_t,
                    clock: clockid_t,
                    time: &timespec,
                ) -> c_int),
            })
        }
    }
}

/// Calls `f`, which may block in the kernel.
pub(crate) fn in_kernel<R>(f: impl FnOnce() -> R) -> R {
    if Caller::here() == Caller::Task { heddle_rt::blocking(f) } else { f() }
}

#[inline(never)]
fn wake_one(key: usize) {
    wait::wake(key, 1, u32::MAX);
}

/// Returns whether a holder can run while the caller spins.
fn others_run() -> bool {
    static WORKERS: AtomicUsize = AtomicUsize::new(0);
    if WORKERS.load(Ordering::Relaxed) == 0 {
        if !start::has_started() {
            return true;
        }
        WORKERS.store(raw::workers(), Ordering::Relaxed);
    }
    WORKERS.load(Ordering::Relaxed) > 1
}
