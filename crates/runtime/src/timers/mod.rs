//! Tasks that sleep until a time.
//!
//! Each CPU has its own wheel, under a lock that is almost always free: tasks that run there set timers in it, and any
//! thread fires or cancels them. A timer lies on the stack of the task that waits for it, so setting one allocates
//! nothing.
//!
//! *Firing races with cancelling.* Both take the wheel's lock. Firing removes the timer, copies out its task and then,
//! as the last access, marks the timer as fired. The owner may see this mark without the lock and leave its stack
//! frame. The task is woken after that. If it has already moved on, this is a spurious wakeup, which every wait
//! tolerates.

mod wheel;

use heddle_core::Ns;
use heddle_sync::SpinLock;
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wheel::Wheel;

/// All timers of a runtime. `W` identifies the waiter.
pub(crate) struct Timers<W> {
    shards: Box<[Shard<W>]>,
}

/// The timers that were set on one CPU.
#[repr(align(128))]
struct Shard<W> {
    lock: SpinLock,
    /// A copy of [`Wheel::next`] that can be read without the lock.
    next: AtomicU64,
    wheel: UnsafeCell<Wheel<Waiter<W>>>,
}

// SAFETY: the wheel is used only under the lock; timers that are set belong to it.
unsafe impl<W: Send> Sync for Shard<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for Shard<W> {}

struct Waiter<W> {
    who: W,
    /// Once true, only the owner accesses the timer.
    fired: AtomicBool,
}

/// A deadline for which a task waits.
pub(crate) struct Timer<W> {
    link: wheel::Timer<Waiter<W>>,
    shard: Cell<usize>,
}

impl<W> Timer<W> {
    /// Returns a timer for `who` that is not set yet.
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

    /// Runs `f` on the wheel. Preemption is off.
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

    /// Sets `timer` on the CPU with this index. Returns whether it is now the earliest of all. Preemption is off.
    ///
    /// # Safety
    /// The timer stays where it is, and is not set again, until [`Timers::cancel`].
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

    /// Cancels `timer`, which was set, if it has not fired. Preemption is off.
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

    /// Returns the earliest deadline, or a time before it if the earliest timer was cancelled; [`Ns::MAX`] if there is
    /// none. After a thread has slept until then and [`Timers::pop_due`] found nothing, this returns a later time.
    #[inline]
    pub(crate) fn next(&self) -> Ns {
        self.shards.iter().map(Shard::next).min().unwrap_or(Ns::MAX)
    }

    /// Removes the first timer that is due and returns its waiter. Timers with the same deadline on the same CPU fire
    /// in the order in which they were set. Preemption is off.
    pub(crate) fn pop_due(&self, now: Ns) -> Option<W> {
        loop {
            let shards = self.shards.iter().map(|shard| (shard.next(), shard));
            let (at, shard) = shards.min_by_key(|&(next, _)| next).filter(|&(at, _)| at <= now)?;
            // Only up to `at`: another CPU may have the next one.
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
            // SAFETY: it was set, so it stays where it is until its owner sees the mark.
            let waiter = unsafe { &(*timer.as_ptr()).who };
            let who = waiter.who;
            waiter.fired.store(true, Ordering::Release);
            Some(who)
        })
    }
}

#[cfg(test)]
mod tests;
