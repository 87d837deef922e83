//! Who sleeps when there is nothing to do, and who is woken when there is.

use crate::core_state::Core;
use crate::worker::Worker;
use heddle_core::{Model, Ns};
use heddle_sys::clock;
use heddle_sys::futex;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Looks at the queues before a worker lies down: about 2 us.
const SPINS: u32 = 50;

/// How a worker without work sleeps (`Worker::bed`).
pub(crate) const AWAKE: u32 = 0;
const IN_FUTEX: u32 = 1;
const IN_POLL: u32 = 2;
const CALLED: u32 = 3;

/// Where a task was put.
pub(crate) struct Placed {
    pub(crate) cpu: usize,
    /// The CPU is the caller's own.
    pub(crate) local: bool,
}

impl Core {
    /// A task was put somewhere: wakes a sleeper that should run it. False if all who could are busy.
    #[inline]
    pub(crate) fn kick(&self, placed: Placed, model: Model, balances: bool) -> bool {
        if self.has_dispatcher {
            self.kick_dispatcher();
            return !self.idle.is_empty();
        }
        // Its only worker is awake: it is the caller's.
        if self.cpus.len() == 1 && placed.local {
            return false;
        }
        fence(Ordering::SeqCst);
        if model == Model::PerCpu && !placed.local && self.idle.unmark(placed.cpu) {
            self.call(placed.cpu);
            return true;
        }
        (model == Model::Central || balances) && self.wake_any()
    }

    /// Wakes one sleeper, if there is one.
    pub(crate) fn wake_any(&self) -> bool {
        let sleeper = self.idle.take_any();
        sleeper.map(|cpu| self.call(cpu)).is_some()
    }

    /// Wakes all sleepers; false if there is none.
    pub(crate) fn wake_all(&self) -> bool {
        fence(Ordering::SeqCst);
        let mut any = false;
        while self.wake_any() {
            any = true;
        }
        any
    }

    /// Wakes the worker of `cpu`, which the caller took out of the idle set.
    pub(crate) fn call(&self, cpu: usize) {
        let Some(bed) = self.cpus[cpu].server().map(|w| &w.bed) else { return };
        match bed.swap(CALLED, Ordering::AcqRel) {
            IN_FUTEX => futex::wake(bed, 1),
            IN_POLL => self.poller.ring(),
            _ => {}
        }
    }

    /// A worker's loop has nothing to do: sleeps until somebody wakes it, data or a timer comes, or for `at_most`. Not at all
    /// if `has_work`, or `is_news` of a task that it has not looked at.
    pub(crate) fn rest(
        &self,
        worker: &Worker,
        at_most: Ns,
        has_work: impl Fn() -> bool,
        is_news: impl Fn() -> bool,
    ) {
        let cpu = worker.cpu();
        for _ in 0..SPINS {
            if has_work() || is_news() {
                return;
            }
            std::hint::spin_loop();
        }
        self.idle.mark(cpu);
        if self.has_dispatcher {
            self.kick_dispatcher();
        }
        if !((has_work() || is_news()) && self.idle.unmark(cpu)) {
            worker.stats.sleeps.add(1);
            self.sleep(worker, at_most);
            self.idle.unmark(cpu);
        }
        worker.bed.store(AWAKE, Ordering::Release);
        // More work than one worker takes at once, or nobody left who polls: wake the next. Not if there is no work: then
        // this one polls again, and two would wake each other for ever.
        if self.cpus.len() > 1 && !self.has_dispatcher && has_work() {
            self.wake_any();
        }
        // The ticker announces its sleep before it looks at the idle set; here the other way round.
        fence(Ordering::SeqCst);
        if self.ticker_bed.load(Ordering::Relaxed) == IN_FUTEX {
            self.wake_ticker();
        }
    }

    fn sleep(&self, worker: &Worker, at_most: Ns) {
        let bed = &worker.bed;
        if self.has_dispatcher {
            return self.doze(bed, AWAKE, at_most);
        }
        let timeout = || match self.timers.next() {
            Ns::MAX => Some(at_most).filter(|&time| time != Ns::MAX),
            next => Some((next - clock::now()).min(at_most)),
        };
        // Called already, or done polling: up again. Where somebody else polls, for all, a futex will do.
        let lain = bed.compare_exchange(AWAKE, IN_POLL, Ordering::AcqRel, Ordering::Acquire);
        let uncalled = || bed.load(Ordering::Acquire) == IN_POLL;
        while lain.is_ok() && uncalled() && !self.poller.attend(uncalled, timeout) {
            if self.poller.is_attended() {
                return self.doze(bed, IN_POLL, at_most);
            }
            // Whoever holds the poller only has a look, and will not call us when something comes.
            std::thread::yield_now();
        }
    }

    /// Sleeps in a futex until called or for `at_most`, unless the bed is no longer `from`.
    fn doze(&self, bed: &AtomicU32, from: u32, at_most: Ns) {
        let timeout = Some(at_most).filter(|&time| time != Ns::MAX);
        if bed.compare_exchange(from, IN_FUTEX, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            while bed.load(Ordering::Acquire) == IN_FUTEX {
                futex::wait(bed, IN_FUTEX, timeout);
                if timeout.is_some() {
                    // Up all the same, called or not: `rest` makes the bed at the end.
                    return;
                }
            }
        }
    }

    /// Wakes the dispatcher if it sleeps. The caller has changed what it looks at.
    pub(crate) fn kick_dispatcher(&self) {
        fence(Ordering::SeqCst);
        if self.dispatcher_bed.load(Ordering::Relaxed) == IN_POLL {
            self.poller.ring();
        }
    }

    /// The dispatcher sleeps until a task queues, a worker waits, data or a timer comes; not at all if something is `due`.
    pub(crate) fn dispatcher_rest(&self, due: impl Fn() -> bool) {
        self.dispatcher_bed.swap(IN_POLL, Ordering::SeqCst);
        // Somebody else may have the poll for a moment: then once more round. What comes is taken there, too.
        self.poller.attend(
            || !due(),
            || Some((self.timers.next() - clock::now()).min(Ns::from_secs(3600))),
        );
        self.dispatcher_bed.store(AWAKE, Ordering::Release);
    }

    pub(crate) fn wake_ticker(&self) {
        if self.ticker_bed.swap(AWAKE, Ordering::AcqRel) == IN_FUTEX {
            futex::wake(&self.ticker_bed, 1);
        }
    }

    /// The ticker sleeps until a worker wakes up; not at all if one is awake.
    pub(crate) fn ticker_sleep(&self) {
        self.ticker_bed.swap(IN_FUTEX, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.is_stopping() || (0..self.cpus.len()).any(|cpu| !self.idle.contains(cpu)) {
            self.ticker_bed.store(AWAKE, Ordering::Release);
        }
        while self.ticker_bed.load(Ordering::Acquire) == IN_FUTEX {
            futex::wait(&self.ticker_bed, IN_FUTEX, None);
        }
    }
}
