//! Condition variables.
//!
//! A thread that waits counts itself, remembers the sequence number, unlocks the mutex and sleeps while the number is
//! the same. A signal changes the number first: a thread that is not in the queue yet will not sleep, and of those in
//! it the first is woken. A broadcast does not wake all waiters, as most would find the mutex locked by another: it
//! moves them to the waiters for the mutex, and each is woken by the unlock of the one before. It wakes one at once
//! only if the mutex is free.
//!
//! # The object may go
//!
//! A program may destroy the object once no thread waits in it, which is as soon as a broadcast returns. `waiters`
//! counts the threads that have yet to touch the object: `pthread_cond_destroy` waits until there are none. A moved
//! thread is subtracted by the thread that moved it, and touches the object no more; it could not do so before the
//! mutex is unlocked, perhaps by the thread that destroys the object.
//!
//! The mutex may go, too, once none waits. A broadcast touches it only under the queue's lock, if a waiter was moved:
//! the mutex then exists, as the waiter is going to lock it.

mod calls;

pub(crate) use calls::{
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init, pthread_cond_signal,
};

use crate::cancel;
use crate::clock;
use crate::mutex::{Mutex, Patience, in_kernel};
use crate::real::real;
use crate::wait::{self, Attend, For, Limit, Outcome};
use heddle_core::Ns;
use heddle_rt::raw::Caller;
use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A `pthread_cond_t`. Zeros are an object without waiters, as PTHREAD_COND_INITIALIZER requires.
#[repr(C)]
struct Cond {
    sequence: AtomicU32,
    /// How many threads are going to touch the object, and [`DESTROYED`].
    waiters: AtomicU32,
    /// The mutex to which waiters may be moved, or 0.
    mutex: AtomicUsize,
    _unused: [AtomicU32; 8],
}

const _: () = assert!(size_of::<Cond>() == size_of::<pthread_cond_t>());

/// `pthread_cond_destroy` waits for the last one of `waiters`.
const DESTROYED: u32 = 1 << 31;

/// glibc's own bits, which its `pthread_cond_init` writes in a word that differs between releases.
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// Returns the index of that word among the words of the object.
#[inline]
fn flags_at() -> usize {
    match FLAGS_AT.load(Ordering::Relaxed) {
        0 => find_flags(),
        at => at,
    }
}

static FLAGS_AT: AtomicUsize = AtomicUsize::new(0);

#[cold]
fn find_flags() -> usize {
    let mut words = [0u32; size_of::<Cond>() / 4];
    let cond = words.as_mut_ptr().cast::<pthread_cond_t>();
    // SAFETY: an attribute and an object of the library's own, initialised before use.
    unsafe {
        let mut shared = std::mem::zeroed();
        libc::pthread_condattr_init(&mut shared);
        libc::pthread_condattr_setpshared(&mut shared, libc::PTHREAD_PROCESS_SHARED);
        let attr: *const pthread_condattr_t = &shared;
        real!(pthread_cond_init(
            cond: *mut pthread_cond_t,
            attr: *const pthread_condattr_t,
        ) -> c_int);
    }
    const OURS: usize = std::mem::offset_of!(Cond, _unused) / 4;
    let at = words.iter().position(|&word| word == SHARED).filter(|&at| at >= OURS);
    let Some(at) = at else {
        heddle_sys::abort("heddle run: the C library's condition variables are of an unknown form");
    };
    FLAGS_AT.store(at, Ordering::Relaxed);
    at
}

/// Which clock a timed wait uses, and until when.
#[derive(Clone, Copy)]
pub(crate) struct Until<'a> {
    /// The object's own if there is none.
    pub(crate) clock: Option<clockid_t>,
    pub(crate) time: &'a timespec,
}

impl Cond {
    /// # Safety
    /// `at` points to a condition variable, as POSIX requires.
    #[inline(always)]
    unsafe fn of<'a>(at: *mut pthread_cond_t) -> &'a Cond {
        // SAFETY: the size is the same, and every field may change while it is shared.
        unsafe { &*at.cast::<Cond>() }
    }

    fn as_ptr(&self) -> *mut pthread_cond_t {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    #[inline]
    fn key(&self) -> usize {
        self.sequence.as_ptr() as usize
    }

    #[inline]
    fn flags(&self) -> u32 {
        let words = std::ptr::from_ref(self).cast::<AtomicU32>();
        // SAFETY: the index is one of the object's words.
        unsafe { (*words.add(flags_at())).load(Ordering::Relaxed) }
    }

    #[inline]
    fn is_shared(&self) -> bool {
        self.flags() & SHARED != 0
    }

    fn clock(&self) -> clockid_t {
        if self.flags() & MONOTONIC != 0 { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME }
    }

    /// Takes `count` threads off that will not touch the object again.
    #[inline]
    fn leave(&self, count: u32) {
        let key = self.waiters.as_ptr() as usize;
        if self.waiters.fetch_sub(count, Ordering::SeqCst) == DESTROYED | count {
            wait::wake(key, usize::MAX, u32::MAX);
        }
    }

    fn wait(&self, mutex: &Mutex, limit: Limit) -> c_int {
        let is_plain = mutex.takes_waiters();
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.mutex.store(if is_plain { mutex.key() } else { 0 }, Ordering::Relaxed);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let failed = if is_plain { mutex.unlock_as_user() } else { mutex.unlock() };
        if failed != 0 {
            self.leave(1);
            return failed;
        }
        let (outcome, at) = wait::wait_requeued(self.key(), limit, || {
            self.sequence.load(Ordering::SeqCst) == sequence
        });
        let was_moved = at != self.key();
        if !was_moved {
            self.leave(1);
        }
        if outcome == Outcome::Interrupted {
            // Its handlers run without the mutex, as they do in the kernel's wait.
            cancel::attend(Attend::Signals);
        }
        let locked = if was_moved && is_plain {
            // Others may have been moved, too, and the word must say so, however this one's wait ended.
            mutex.lock_woken()
        } else {
            mutex.lock(Patience::Endless)
        };
        if is_plain && locked == 0 {
            mutex.remove_user();
        }
        if locked != 0 {
            return locked;
        }
        match outcome {
            // A thread that was moved has had its signal.
            Outcome::TimedOut if !was_moved => libc::ETIMEDOUT,
            Outcome::Interrupted if !was_moved => {
                cancel::attend(Attend::Cancel);
                0
            }
            _ => 0,
        }
    }

    /// Counts a signal. Returns whether a thread may wait for it.
    #[inline]
    fn advance(&self) -> bool {
        let may_wait = self.waiters.load(Ordering::Relaxed) & !DESTROYED != 0;
        if may_wait {
            self.sequence.fetch_add(1, Ordering::SeqCst);
        }
        may_wait
    }

    /// Lets a waiter go.
    ///
    /// It is woken, not moved: the caller often unlocks the mutex before it runs. On one CPU, one way of a handover
    /// costs 161 ns so, and 214 ns with a move; eight producers and consumers on two CPUs take the same time
    /// (2026-11-27).
    #[inline]
    fn signal(&self) {
        if self.advance() {
            wait::wake(self.key(), 1, u32::MAX);
        }
    }

    /// Lets all waiters go.
    fn broadcast(&self) {
        if !self.advance() {
            return;
        }
        loop {
            let to = self.mutex.load(Ordering::Relaxed);
            if to == 0 || Caller::here() == Caller::Runtime {
                wait::wake(self.key(), usize::MAX, u32::MAX);
                return;
            }
            let is_free = Cell::new(false);
            let moved = || {
                // SAFETY: a waiter for this mutex was moved to it, and has not left.
                let mutex = unsafe { Mutex::of(to as *mut pthread_mutex_t) };
                is_free.set(!mutex.expect_waiters());
            };
            // The waiters in the queue wait with the mutex that is noted there: all with the same one, says POSIX.
            let is_theirs = || self.mutex.load(Ordering::Relaxed) == to;
            let requeued = wait::requeue(self.key(), to, (0, usize::MAX), is_theirs, moved);
            let Some((_, count)) = requeued else { continue };
            if count > 0 {
                self.leave(count as u32);
            }
            if is_free.get() {
                wait::wake(to, 1, u32::MAX);
            }
            return;
        }
    }

    /// Waits until no thread is going to touch the object.
    fn destroy(&self) {
        while self.waiters.fetch_or(DESTROYED, Ordering::SeqCst) & !DESTROYED != 0 {
            let key = self.waiters.as_ptr() as usize;
            let touched = || self.waiters.load(Ordering::SeqCst) & !DESTROYED != 0;
            wait::wait(key, u32::MAX, For::Event, Limit::FOREVER, touched);
        }
    }

    /// Waits in an object that processes share, with the C library's function.
    ///
    /// A task would not notice in the kernel that it is to be cancelled, so it looks from time to time.
    fn wait_shared(&self, mutex: *mut pthread_mutex_t, deadline: Option<Ns>) -> c_int {
        const LOOK: Ns = Ns(100_000_000);
        let cond = self.as_ptr();
        if deadline.is_none() && Caller::here() != Caller::Task {
            // SAFETY: the C library's function of this type, on objects that the program vouches for.
            return unsafe {
                real!(pthread_cond_wait(
                    cond: *mut pthread_cond_t,
                    mutex: *mut pthread_mutex_t,
                ) -> c_int)
            };
        }
        let look = Ns(heddle_sys::clock::now().0.saturating_add(LOOK.0));
        let time = clock::timespec(deadline.map_or(look, |end| end.min(look)));
        let (time, clock) = (&raw const time, libc::CLOCK_MONOTONIC);
        // SAFETY: as above.
        let result = in_kernel(|| unsafe {
            real!(pthread_cond_clockwait(
                cond: *mut pthread_cond_t,
                mutex: *mut pthread_mutex_t,
                clock: clockid_t,
                time: *const timespec,
            ) -> c_int)
        });
        if result == libc::ETIMEDOUT && deadline.is_none_or(|end| end > look) {
            cancel::point();
            return 0;
        }
        result
    }

    /// Waits in an object that processes could share, with a mutex that they do not: the waiters are in the queue, and
    /// the C library knows the state. A signal before the caller is in the queue is missed, so it looks often.
    fn wait_half_shared(&self, mutex: &Mutex, limit: Limit) -> c_int {
        const LOOK: Ns = Ns(1_000_000);
        let failed = mutex.unlock();
        if failed != 0 {
            return failed;
        }
        let look = Ns(heddle_sys::clock::now().0.saturating_add(LOOK.0));
        let is_last = limit.deadline.is_some_and(|end| end <= look);
        let deadline = Some(limit.deadline.map_or(look, |end| end.min(look)));
        let outcome =
            wait::wait(self.key(), u32::MAX, For::Event, Limit { deadline, ..limit }, || true);
        match mutex.lock(Patience::Endless) {
            0 if outcome == Outcome::TimedOut && is_last => libc::ETIMEDOUT,
            0 => {
                cancel::attend(Attend::Cancel);
                0
            }
            error => error,
        }
    }
}

/// Waits in `cond` until it is signalled or `until` has come: what all calls that wait do.
///
/// # Safety
/// POSIX's contract. The caller's frames may be left.
#[inline]
pub(crate) unsafe fn wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Option<Until>,
) -> c_int {
    // SAFETY: the caller's contract.
    let (object, lock) = unsafe { (Cond::of(cond), Mutex::of(mutex)) };
    let mut limit = Limit { deadline: None, attend: Attend::Cancel };
    if let Some(Until { clock, time }) = until {
        match clock::deadline(clock.unwrap_or_else(|| object.clock()), time) {
            Ok(deadline) => limit.deadline = Some(deadline),
            Err(error) => return error,
        }
    }
    if Caller::here() == Caller::Runtime {
        return object.wait_shared(mutex, limit.deadline);
    }
    cancel::point();
    match object.is_shared() {
        false => object.wait(lock, limit),
        true if lock.is_shared() => object.wait_shared(mutex, limit.deadline),
        true => object.wait_half_shared(lock, limit),
    }
}
