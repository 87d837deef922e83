//! Tasks and futures that sleep until a time.
//!
//! Each CPU has its own wheel, under a lock that is almost always free: tasks that run there set timers in it, and any
//! thread fires or cancels them. A timer lies on the stack of the task that waits for it, or in its future, so setting
//! one allocates nothing.
//!
//! *Firing races with cancelling.* Both take the wheel's lock. Firing removes the timer, copies out its task and then,
//! as the last access, marks the timer as fired. The owner may see this mark without the lock and leave its stack
//! frame. The task is woken after that. If it has already moved on, this is a spurious wakeup, which every wait
//! tolerates. A future's waker is taken out instead of copied, so it is called, replaced or dropped without the lock.
//!
//! *Futures outlive runtimes.* Their timers would be links in a wheel that is freed. So a runtime that ends *closes*
//! its timers: it takes all of them out, wakes the futures (which find another runtime), and refuses futures from then
//! on.

mod wheel;

use heddle_core::Ns;
use heddle_sync::SpinLock;
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use wheel::Wheel;

/// All timers of a runtime. `W` identifies a task.
pub(crate) struct Timers<W> {
    shards: Box<[Shard<W>]>,
}

/// The timers that were set on one CPU.
#[repr(align(128))]
struct Shard<W> {
    lock: SpinLock,
    /// A copy of [`Wheel::next`] that can be read without the lock.
    next: AtomicU64,
    /// Futures are refused; changed under the lock.
    closed: AtomicBool,
    wheel: UnsafeCell<Wheel<Waiter<W>>>,
}

// SAFETY: the wheel is used only under the lock; timers that are set belong to it.
unsafe impl<W: Send> Sync for Shard<W> {}
// SAFETY: as above.
unsafe impl<W: Send> Send for Shard<W> {}

struct Waiter<W> {
    who: Sleeper<W>,
    /// Once true, only the owner accesses the timer.
    fired: AtomicBool,
}

enum Sleeper<W> {
    Task(W),
    /// Its waker, until it is taken out under the lock.
    Future(Cell<Option<Waker>>),
}

/// What must be woken because a timer fired.
#[must_use]
pub(crate) enum Fired<W> {
    Task(W),
    Future(Option<Waker>),
}

impl<W: Copy> Sleeper<W> {
    #[inline]
    fn fire(&self) -> Fired<W> {
        match self {
            Sleeper::Task(who) => Fired::Task(*who),
            Sleeper::Future(waker) => Fired::Future(waker.take()),
        }
    }
}

/// A deadline for which a task or a future waits.
pub(crate) struct Timer<W> {
    link: wheel::Timer<Waiter<W>>,
    shard: Cell<usize>,
}

impl<W> Timer<W> {
    /// Returns a timer for `who` that is not set yet.
    pub(crate) fn new(deadline: Ns, who: W) -> Timer<W> {
        Timer::of(deadline, Sleeper::Task(who))
    }

    /// Returns a timer that calls `waker` and is not set yet.
    pub(crate) fn of_future(deadline: Ns, waker: Waker) -> Timer<W> {
        Timer::of(deadline, Sleeper::Future(Cell::new(Some(waker))))
    }

    fn of(deadline: Ns, who: Sleeper<W>) -> Timer<W> {
        let waiter = Waiter { who, fired: AtomicBool::new(false) };
        Timer { link: wheel::Timer::new(deadline, waiter), shard: Cell::new(0) }
    }

    /// Returns whether it fired since it was set.
    pub(crate) fn has_fired(&self) -> bool {
        self.link.who.fired.load(Ordering::Acquire)
    }

    /// Takes the waker out of a timer that is not set, if it has one.
    pub(crate) fn into_waker(self) -> Option<Waker> {
        match self.link.who.who {
            Sleeper::Task(_) => None,
            Sleeper::Future(waker) => waker.into_inner(),
        }
    }
}

impl<W> Shard<W> {
    fn new() -> Shard<W> {
        Shard {
            lock: SpinLock::new(),
            next: AtomicU64::new(Ns::MAX.0),
            closed: AtomicBool::new(false),
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
        // SAFETY: by the caller's promise.
        let first = self.shards[cpu].with(|wheel| unsafe { set_in(wheel, timer) });
        first && timer.link.deadline <= self.next()
    }

    /// Like [`Timers::set`], for a future's timer. `None` if the timers are closed: then it is not set.
    ///
    /// # Safety
    /// As for [`Timers::set`]. Until the timer is cancelled, whatever holds the timers may free them only after
    /// [`Timers::close`].
    pub(crate) unsafe fn set_of_future(&self, cpu: usize, timer: &Timer<W>) -> Option<bool> {
        timer.shard.set(cpu);
        let shard = &self.shards[cpu];
        let first = shard.with(|wheel| {
            let is_open = !shard.closed.load(Ordering::Relaxed);
            // SAFETY: by the caller's promise.
            is_open.then(|| unsafe { set_in(wheel, timer) })
        })?;
        Some(first && timer.link.deadline <= self.next())
    }

    /// Makes a future's timer, which was set and may have fired, call `waker`. Returns the waker that it does not call:
    /// the one before, or `waker` if it has fired. Preemption is off.
    pub(crate) fn replace_waker(&self, timer: &Timer<W>, waker: Waker) -> Waker {
        self.shards[timer.shard.get()].with(|_| match &timer.link.who.who {
            Sleeper::Future(own) => match own.take() {
                Some(before) => {
                    own.set(Some(waker));
                    before
                }
                None => waker,
            },
            Sleeper::Task(_) => waker,
        })
    }

    /// Returns whether a future's timer, which was set, is still to call `waker` or its equal. Preemption is off.
    pub(crate) fn will_wake(&self, timer: &Timer<W>, waker: &Waker) -> bool {
        self.shards[timer.shard.get()].with(|_| match &timer.link.who.who {
            Sleeper::Future(own) => {
                let held = own.take();
                let same = held.as_ref().is_some_and(|held| held.will_wake(waker));
                if held.is_some() {
                    own.set(held);
                }
                same
            }
            Sleeper::Task(_) => false,
        })
    }

    /// Takes all timers out, as if they had fired, and refuses futures from now on. `wake` gets the wakers, without a
    /// lock; tasks are not woken. Preemption is off.
    pub(crate) fn close(&self, mut wake: impl FnMut(Waker)) {
        for shard in &self.shards {
            shard.with(|_| shard.closed.store(true, Ordering::Relaxed));
            while let Some(fired) = shard.pop(Ns::MAX) {
                if let Fired::Future(Some(waker)) = fired {
                    wake(waker);
                }
            }
        }
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

    /// Removes the first timer that is due and returns whom it wakes. Timers with the same deadline on the same CPU
    /// fire in the order in which they were set. Preemption is off.
    pub(crate) fn pop_due(&self, now: Ns) -> Option<Fired<W>> {
        loop {
            let shards = self.shards.iter().map(|shard| (shard.next(), shard));
            let (at, shard) = shards.min_by_key(|&(next, _)| next).filter(|&(at, _)| at <= now)?;
            // Only up to `at`: another CPU may have the next one.
            if let Some(fired) = shard.pop(at) {
                return Some(fired);
            }
        }
    }
}

/// Sets `timer` in `wheel`, and returns whether it is the earliest there.
///
/// # Safety
/// As for [`Timers::set`].
#[inline(always)]
unsafe fn set_in<W>(wheel: &mut Wheel<Waiter<W>>, timer: &Timer<W>) -> bool {
    let before = wheel.next();
    // SAFETY: by the caller's promise; it leaves the wheel when it fires or is cancelled.
    unsafe { wheel.set(&timer.link) };
    timer.link.deadline < before
}

impl<W: Copy> Shard<W> {
    fn pop(&self, now: Ns) -> Option<Fired<W>> {
        self.with(|wheel| {
            let timer = wheel.pop(now)?;
            // SAFETY: it was set, so it stays where it is until its owner sees the mark.
            let waiter = unsafe { &(*timer.as_ptr()).who };
            let fired = waiter.who.fire();
            waiter.fired.store(true, Ordering::Release);
            Some(fired)
        })
    }
}

#[cfg(test)]
mod tests;
