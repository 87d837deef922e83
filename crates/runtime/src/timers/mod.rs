//! Tasks that sleep until a time.
//!
//! Each CPU has a wheel of its own, under a lock that is almost always free: tasks that run there set timers in it,
//! and any thread fires or cancels them. A timer lies on the stack of the task that waits for it, so that setting one
//! allocates nothing.
//!
//! *Firing against cancelling.* Both take the lock of the wheel. A timer that fires is taken out, its task noted, and
//! then, as the last thing that touches it, marked as fired; its owner, which may find the mark without the lock, can
//! leave its stack frame from then on. The task is woken after that. If it has gone on meanwhile, it wakes once too
//! often somewhere else, as all that wait are prepared to.

mod wheel;

use heddle_core::Ns;
use heddle_sync::SpinLock;
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wheel::Wheel;

/// All timers of a runtime. `W` says who waits.
pub(crate) struct Timers<W> {
    shards: Box<[Shard<W>]>,
}

/// The timers that were set on one CPU.
#[repr(align(128))]
struct Shard<W> {
    lock: SpinLock,
    /// [`Wheel::next`], for all to read.
    next: AtomicU64,
    wheel: UnsafeCell<Wheel<Waiter<W>>>,
}

// SAFETY: the wheel is used under the lock only; timers that are set belong to it.
unsafe impl<W: Send> Sync for Shard<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for Shard<W> {}

struct Waiter<W> {
    who: W,
    /// Only the owner touches the timer from here on.
    fired: AtomicBool,
}

/// A time for which a task waits.
pub(crate) struct Timer<W> {
    link: wheel::Timer<Waiter<W>>,
    shard: Cell<usize>,
}

impl<W> Timer<W> {
    /// A timer for `who` that is not set yet.
    pub(crate) fn new(deadline: Ns, who: W) -> Timer<W> {
        let waiter = Waiter { who, fired: AtomicBool::new(false) };
        Timer { link: wheel::Timer::new(deadline, waiter), shard: Cell::new(0) }
    }
}

impl<W> Shard<W> {
    fn new() -> Shard<W> {
        Shard {
            lock: SpinLock::new(),
            next: AtomicU64::new(Ns::MAX.0),
            wheel: UnsafeCell::new(Wheel::new()),
        }
    }

    fn next(&self) -> Ns {
        Ns(self.next.load(Ordering::Acquire))
    }

    /// Runs `f` on the wheel. The caller cannot be preempted meanwhile.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Wheel<Waiter<W>>) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let wheel = unsafe { &mut *self.wheel.get() };
        let result = f(wheel);
        self.next.store(wheel.next().0, Ordering::Release);
        self.lock.unlock();
        result
    }
}

impl<W: Copy> Timers<W> {
    pub(crate) fn new(cpus: usize) -> Timers<W> {
        Timers { shards: (0..cpus).map(|_| Shard::new()).collect() }
    }

    /// Sets `timer` on the CPU with this index; whether it is now the earliest of all. Preemption is off.
    ///
    /// # Safety
    /// It stays where it is, and is not set again, until [`Timers::cancel`].
    #[inline]
    pub(crate) unsafe fn set(&self, cpu: usize, timer: &Timer<W>) -> bool {
        timer.shard.set(cpu);
        let first = self.shards[cpu].with(|wheel| {
            let before = wheel.next();
            // SAFETY: by the caller's promise; it leaves the wheel when it fires or is cancelled.
            unsafe { wheel.set(&timer.link) };
            timer.link.deadline < before
        });
        first && timer.link.deadline <= self.next()
    }

    /// Takes back `timer`, which was set, if it has not fired. Preemption is off.
    #[inline]
    pub(crate) fn cancel(&self, timer: &Timer<W>) {
        let fired = &timer.link.who.fired;
        if fired.load(Ordering::Acquire) {
            return;
        }
        self.shards[timer.shard.get()].with(|wheel| {
            if !fired.load(Ordering::Relaxed) {
                // SAFETY: it was set here and has not fired, so it is in this wheel.
                unsafe { wheel.cancel(&timer.link) };
            }
        });
    }

    /// The earliest deadline, or a time before it if the timer that had the earliest one was cancelled; [`Ns::MAX`]
    /// if there is none. A thread that sleeps until then and finds that nothing is due ([`Timers::pop_due`]) gets a
    /// later one.
    #[inline]
    pub(crate) fn next(&self) -> Ns {
        self.shards.iter().map(Shard::next).min().unwrap_or(Ns::MAX)
    }

    /// Takes out the first timer that is due; who waits for it. Those of one deadline fire in the order in which they
    /// were set on a CPU. Preemption is off.
    pub(crate) fn pop_due(&self, now: Ns) -> Option<W> {
        loop {
            let shards = self.shards.iter().map(|shard| (shard.next(), shard));
            let (at, shard) = shards.min_by_key(|&(next, _)| next).filter(|&(at, _)| at <= now)?;
            // What is due then and no later: another CPU may have the next one.
            if let Some(who) = shard.pop(at) {
                return Some(who);
            }
        }
    }
}

impl<W: Copy> Shard<W> {
    fn pop(&self, now: Ns) -> Option<W> {
        self.with(|wheel| {
            let timer = wheel.pop(now)?;
            // SAFETY: it was set, so it stays where it is until its owner finds the mark.
            let waiter = unsafe { &(*timer.as_ptr()).who };
            let who = waiter.who;
            waiter.fired.store(true, Ordering::Release);
            Some(who)
        })
    }
}

#[cfg(test)]
mod tests;
