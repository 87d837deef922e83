//! Barriers and spin locks.
//!
//! A barrier's first eight bytes count the threads that have arrived and the rounds that are over. The last thread of a
//! round begins the next one and wakes the others, who sleep for the object's address. Each thread of a round that is
//! over still looks at the object once, so the last one has said before how many will leave, and `destroy` waits for
//! them.

use crate::cancel;
use crate::mutex::failed_to_take;
use crate::real::real;
use crate::sys::syscall;
use crate::wait::{self, Attend, For, Limit, Outcome};
use heddle_rt::raw::Caller;
use libc::{pthread_barrier_t, pthread_barrierattr_t, pthread_spinlock_t};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// glibc's object, as its `pthread_barrier_init` leaves it: zeros, the count, and whether processes share it.
#[repr(C)]
struct Barrier {
    /// The number of threads that have arrived, and above 32 bits that of the rounds that are over.
    state: AtomicU64,
    count: c_uint,
    shared: c_int,
    /// The number of threads that have yet to leave a round that is over, and [`DESTROYED`].
    leaving: AtomicU32,
}

const _: () = assert!(size_of::<Barrier>() <= size_of::<pthread_barrier_t>());

/// Set when a thread that destroys the barrier waits for the others to leave. A count is below it.
const DESTROYED: u32 = 1 << 31;

impl Barrier {
    /// Returns the barrier, unless processes share it: then it is the C library's.
    ///
    /// # Safety
    /// `barrier` is initialised.
    unsafe fn own<'a>(barrier: *mut pthread_barrier_t) -> Option<&'a Barrier> {
        // SAFETY: the layouts agree, and only this library uses a barrier that processes do not share.
        let barrier = unsafe { &*barrier.cast::<Barrier>() };
        (barrier.shared == 0).then_some(barrier)
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn round(&self) -> u32 {
        (self.state.load(Ordering::SeqCst) >> 32) as u32
    }

    /// Arrives. Returns the round, and whether the caller was its last thread and has begun the next.
    fn arrive(&self) -> (u32, bool) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let round = (state >> 32) as u32;
            let is_last = state as u32 + 1 == self.count;
            let next = if is_last { u64::from(round.wrapping_add(1)) << 32 } else { state + 1 };
            if is_last {
                // Before anybody can leave.
                self.leaving.fetch_add(self.count, Ordering::Relaxed);
            }
            let (ok, err) = (Ordering::SeqCst, Ordering::Relaxed);
            match self.state.compare_exchange(state, next, ok, err) {
                Ok(_) => return (round, is_last),
                Err(now) => state = now,
            }
            if is_last {
                self.leaving.fetch_sub(self.count, Ordering::Relaxed);
            }
        }
    }

    fn wait(&self) -> c_int {
        let (round, is_last) = self.arrive();
        if is_last {
            wait::wake(self.key(), usize::MAX, u32::MAX);
        }
        while self.round() == round {
            let is_on = || self.round() == round;
            if wait::wait(self.key(), u32::MAX, For::Event, Limit::FOREVER, is_on)
                == Outcome::Interrupted
            {
                let _ = cancel::attend(Attend::Signals);
            }
        }
        let key = self.leaving.as_ptr() as usize;
        if self.leaving.fetch_sub(1, Ordering::SeqCst) - 1 == DESTROYED {
            wait::wake(key, usize::MAX, u32::MAX);
        }
        if is_last { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
    }

    fn destroy(&self) -> c_int {
        if self.state.load(Ordering::Acquire) as u32 != 0 {
            return libc::EBUSY;
        }
        self.leaving.fetch_or(DESTROYED, Ordering::SeqCst);
        let is_left = || self.leaving.load(Ordering::SeqCst) != DESTROYED;
        while is_left() {
            let key = self.leaving.as_ptr() as usize;
            if wait::wait(key, u32::MAX, For::Event, Limit::FOREVER, is_left)
                == Outcome::Interrupted
            {
                let _ = cancel::attend(Attend::Signals);
            }
        }
        0
    }
}

/// POSIX's `pthread_barrier_init`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: *mut pthread_barrier_t,
    attr: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    // SAFETY: the function has this type; the caller's contract.
    unsafe {
        real!(pthread_barrier_init(
            barrier: *mut pthread_barrier_t,
            attr: *const pthread_barrierattr_t,
            count: c_uint,
        ) -> c_int)
    }
}

/// POSIX's `pthread_barrier_destroy`. Waits for the threads that have yet to leave the last round.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the caller's contract.
    if let Some(own) = unsafe { Barrier::own(barrier) } {
        return own.destroy();
    }
    // SAFETY: the function has this type; the caller's contract.
    heddle_rt::blocking(|| unsafe {
        real!(pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int)
    })
}

/// POSIX's `pthread_barrier_wait`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the caller's contract.
    if let Some(own) = unsafe { Barrier::own(barrier) } {
        return own.wait();
    }
    // SAFETY: the function has this type; the caller's contract.
    heddle_rt::blocking(|| unsafe {
        real!(pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int)
    })
}

/// What glibc stores in a spin lock that is free, on x86-64. Less is taken.
const FREE: c_int = 1;

/// How often a thread looks at a spin lock before it lets others run.
const ROUNDS: u32 = 100;

/// Returns the lock's word.
///
/// # Safety
/// `lock` is valid.
unsafe fn word<'a>(lock: *mut pthread_spinlock_t) -> &'a AtomicI32 {
    // SAFETY: the caller's contract; an int, used atomically by everybody.
    unsafe { AtomicI32::from_ptr(lock.cast()) }
}

fn try_lock(word: &AtomicI32) -> bool {
    word.swap(0, Ordering::Acquire) == FREE
}

/// Waits for a spin lock and takes it. Preemptible: the holder may be a task that only this worker can run.
#[cold]
fn spin(word: &AtomicI32) {
    loop {
        for _ in 0..ROUNDS {
            if word.load(Ordering::Relaxed) == FREE && try_lock(word) {
                return;
            }
            std::hint::spin_loop();
        }
        give_way();
    }
}

/// Lets others run. Not part of [`spin`], which must have nothing to clean up: the handler of a signal that a kernel
/// thread gets there may leave it from any instruction by unwinding.
#[inline(never)]
fn give_way() {
    match Caller::here() {
        Caller::Task => {
            heddle_rt::yield_now();
            cancel::look();
        }
        // SAFETY: a system call without arguments.
        _ => unsafe {
            syscall!(libc::SYS_sched_yield);
        },
    }
}

/// POSIX's `pthread_spin_init`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_init(lock: *mut pthread_spinlock_t, _shared: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { word(lock) }.store(FREE, Ordering::Release);
    0
}

/// POSIX's `pthread_spin_destroy`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_destroy(_lock: *mut pthread_spinlock_t) -> c_int {
    0
}

/// POSIX's `pthread_spin_lock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's contract.
    let word = unsafe { word(lock) };
    if !try_lock(word) {
        spin(word);
    }
    0
}

/// POSIX's `pthread_spin_trylock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's contract.
    if try_lock(unsafe { word(lock) }) {
        return 0;
    }
    failed_to_take(lock as usize);
    libc::EBUSY
}

/// POSIX's `pthread_spin_unlock`.
///
/// # Safety
/// POSIX's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { word(lock) }.store(FREE, Ordering::Release);
    0
}
