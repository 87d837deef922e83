//! Robust mutexes: who locks one whose holder has ended learns so.
//!
//! The word is as the kernel's robust futexes have it: the holder's number, [`WAITERS`], [`OWNER_DIED`]. A thread links
//! the mutexes that it holds through their own pointers. A task marks them when it ends; a kernel thread does so in the
//! destructor of a key, which the C library calls when the thread ends. The kernel's own list would wake futexes only.

use super::own::{Own, own_tid};
use super::{Mutex, Patience, TYPE, kind};
use crate::real::real;
use crate::thread::Thread;
use crate::wait;
use libc::pthread_key_t;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const NUMBER: u32 = 0x3fff_ffff;

/// `owner` of a mutex whose last holder died, until `pthread_mutex_consistent`.
const INCONSISTENT: u32 = 0x7fff_ffff;
/// `owner` of a mutex that was unlocked inconsistent.
const NOT_RECOVERABLE: u32 = INCONSISTENT - 1;

/// The robust mutexes that a thread holds, the last one first.
#[derive(Clone, Copy)]
pub(crate) struct RobustList(*const Mutex);

impl Default for RobustList {
    fn default() -> Self {
        RobustList(ptr::null())
    }
}

/// Calls `f` on the calling thread's list.
fn with_list<R>(f: impl FnOnce(&Cell<RobustList>) -> R) -> R {
    match Thread::current() {
        Some(thread) => f(&thread.robust),
        None => {
            let list = &Own::get().robust;
            if list.get().0.is_null() {
                leave_at_end();
            }
            f(list)
        }
    }
}

/// Puts `mutex`, which the caller has locked, on the caller's list.
fn link(mutex: &Mutex) {
    with_list(|list| {
        let first = list.get().0;
        mutex.prev.set(ptr::null());
        mutex.next.set(first);
        // SAFETY: a mutex on the list is held, and so it exists.
        if let Some(first) = unsafe { first.as_ref() } {
            first.prev.set(mutex);
        }
        list.set(RobustList(mutex));
    });
}

/// Takes `mutex` off the caller's list.
fn unlink(mutex: &Mutex) {
    let (prev, next) = (mutex.prev.replace(ptr::null()), mutex.next.replace(ptr::null()));
    // SAFETY: as in `link`.
    unsafe {
        if let Some(next) = next.as_ref() {
            next.prev.set(prev);
        }
        match prev.as_ref() {
            Some(prev) => prev.next.set(next),
            None => with_list(|list| list.set(RobustList(next))),
        }
    }
}

/// Returns the error of a mutex that the caller holds already, or counts one more lock.
fn again(mutex: &Mutex) -> Option<c_int> {
    match mutex.kind() & TYPE {
        kind::RECURSIVE => Some(mutex.count_up()),
        kind::ERRORCHECK => Some(libc::EDEADLK),
        _ => None,
    }
}

/// Takes a mutex whose word is `word`, free or of a dead holder. `also` is set in the word. Returns `None` if the word
/// has changed.
fn take(mutex: &Mutex, word: u32, tid: u32, also: u32) -> Option<c_int> {
    let taken = tid | also | word & WAITERS;
    mutex.word.compare_exchange(word, taken, Ordering::SeqCst, Ordering::Relaxed).ok()?;
    if word & OWNER_DIED != 0 {
        // The dead holder counts as a user in the caller's place.
        mutex.count.store(1, Ordering::Relaxed);
        mutex.owner.store(INCONSISTENT, Ordering::Relaxed);
        link(mutex);
        return Some(libc::EOWNERDEAD);
    }
    if mutex.owner.load(Ordering::Relaxed) == NOT_RECOVERABLE {
        mutex.word.store(0, Ordering::SeqCst);
        wake_all(mutex);
        return Some(libc::ENOTRECOVERABLE);
    }
    mutex.own(tid);
    mutex.count.store(1, Ordering::Relaxed);
    link(mutex);
    Some(0)
}

fn wake_all(mutex: &Mutex) {
    // The store before this must be seen before the waiters are counted.
    std::sync::atomic::fence(Ordering::SeqCst);
    wait::wake(mutex.key(), usize::MAX, u32::MAX);
}

pub(super) fn lock(mutex: &Mutex, patience: Patience) -> c_int {
    let tid = own_tid();
    let mut limit = None;
    loop {
        let word = mutex.word.load(Ordering::Relaxed);
        if word & NUMBER == 0 || word & OWNER_DIED != 0 {
            // Having waited, the caller does not know whether others still do.
            let also = if limit.is_some() { WAITERS } else { 0 };
            match take(mutex, word, tid, also) {
                Some(result) => return result,
                None => continue,
            }
        }
        if word & NUMBER == tid
            && let Some(result) = again(mutex)
        {
            return result;
        }
        let limit = match limit {
            Some(limit) => limit,
            None => match patience.limit() {
                Ok(known) => *limit.insert(known),
                Err(error) => return error,
            },
        };
        let waited = word | WAITERS;
        let (own, other) = (Ordering::SeqCst, Ordering::Relaxed);
        if word != waited && mutex.word.compare_exchange(word, waited, own, other).is_err() {
            continue;
        }
        if let Err(error) = mutex.sleep(waited, limit) {
            return error;
        }
    }
}

pub(super) fn try_lock(mutex: &Mutex) -> c_int {
    let tid = own_tid();
    loop {
        let word = mutex.word.load(Ordering::Relaxed);
        if word & NUMBER != 0 && word & OWNER_DIED == 0 {
            let known = if word & NUMBER == tid { again(mutex) } else { None };
            return known.unwrap_or(libc::EBUSY);
        }
        if let Some(result) = take(mutex, word, tid, 0) {
            return result;
        }
    }
}

pub(super) fn unlock(mutex: &Mutex) -> c_int {
    if mutex.word.load(Ordering::Relaxed) & NUMBER != own_tid() {
        return libc::EPERM;
    }
    let is_lost = mutex.owner.load(Ordering::Relaxed) == INCONSISTENT;
    if !is_lost && mutex.kind() & TYPE == kind::RECURSIVE && mutex.count_down() != 0 {
        return 0;
    }
    unlink(mutex);
    mutex.disown();
    mutex.count.store(0, Ordering::Relaxed);
    if is_lost {
        mutex.owner.store(NOT_RECOVERABLE, Ordering::Relaxed);
    }
    let key = mutex.key();
    if mutex.word.swap(0, Ordering::SeqCst) & WAITERS != 0 {
        wait::wake(key, if is_lost { usize::MAX } else { 1 }, u32::MAX);
    }
    0
}

/// Marks the mutexes of a list whose thread ends.
fn leave(list: &Cell<RobustList>) {
    let mut at = list.take().0;
    // SAFETY: a mutex on the list is held, and so it exists until the word says that it is not.
    while let Some(mutex) = unsafe { at.as_ref() } {
        at = mutex.next.replace(ptr::null());
        mutex.prev.set(ptr::null());
        let key = mutex.key();
        let die = |word| Some(word & WAITERS | OWNER_DIED);
        let word = mutex.word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, die);
        if word.is_ok_and(|word| word & WAITERS != 0) {
            wait::wake(key, 1, u32::MAX);
        }
    }
}

/// Gives `thread`, which the calling kernel thread becomes, the robust mutexes that it holds.
pub(crate) fn take_robust(thread: &Thread) {
    thread.robust.set(Own::get().robust.take());
}

/// Undoes [`take_robust`], in the kernel thread.
pub(crate) fn give_robust_back(thread: &Thread) {
    let list = thread.robust.take();
    if !list.0.is_null() {
        Own::get().robust.set(list);
        leave_at_end();
    }
}

/// Marks the robust mutexes of the calling thread, which ends.
pub(crate) fn leave_robust(thread: &Thread) {
    leave(&thread.robust);
}

/// Makes the calling kernel thread mark its robust mutexes when it ends.
fn leave_at_end() {
    unsafe extern "C" fn end(_: *mut c_void) {
        leave(&Own::get().robust);
    }
    /// The key plus one.
    static KEY: AtomicU64 = AtomicU64::new(0);
    // SAFETY: both functions have these types; the key is this function's own.
    unsafe {
        if KEY.load(Ordering::Acquire) == 0 {
            let mut made: pthread_key_t = 0;
            let (key, end) = (&raw mut made, end as unsafe extern "C" fn(*mut c_void));
            type Destructor = unsafe extern "C" fn(*mut c_void);
            if real!(pthread_key_create(key: *mut pthread_key_t, end: Destructor) -> c_int) != 0 {
                return;
            }
            let made_by_us = u64::from(made) + 1;
            // Two threads may make one each; the second remains unused.
            let _ = KEY.compare_exchange(0, made_by_us, Ordering::AcqRel, Ordering::Acquire);
        }
        let key = (KEY.load(Ordering::Acquire) - 1) as pthread_key_t;
        libc::pthread_setspecific(key, ptr::from_ref(&KEY).cast());
    }
}
