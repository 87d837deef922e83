//! External sources of work: sockets and timers.

use crate::carrier::call_waker;
use crate::lanes::Lanes;
use crate::poller::Poller;
use crate::preempt::NoPreempt;
use crate::task::TaskRef;
use crate::timers::{Fired, Timers};
use crate::wake::wake;
use heddle_core::Ns;
use heddle_netstack::net::Net;
use heddle_sync::park::Driver;
use heddle_sys::{clock, thread};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// See the module.
pub(crate) struct Inputs {
    pub(crate) timers: Timers<TaskRef>,
    pub(crate) poller: Poller,
    /// The runtime's own network, if it has one.
    lanes: Option<Lanes>,
    /// The ticker polls them, so computing tasks need not.
    watched: AtomicBool,
}

impl Inputs {
    /// Returns the inputs of a runtime on `cpus` CPUs. Other processes see the sockets of `net` if `seen`.
    ///
    /// # Errors
    /// The system's, if the poller gets no file descriptor.
    pub(crate) fn new(cpus: usize, net: Option<Arc<Net>>, seen: bool) -> io::Result<Inputs> {
        let poller = Poller::new()?;
        let lanes = net.map(|net| Lanes::new(net, &poller, seen)).transpose()?;
        Ok(Inputs { timers: Timers::new(cpus), poller, lanes, watched: AtomicBool::new(false) })
    }

    /// Returns the runtime's own network, if it has one.
    #[inline]
    pub(crate) fn lanes(&self) -> Option<&Lanes> {
        self.lanes.as_ref()
    }

    /// Has the frames sent that wait in lanes for those of other tasks.
    #[inline]
    pub(crate) fn send_waiting(&self) {
        if let Some(lanes) = self.lanes() {
            lanes.send_waiting();
        }
    }

    /// Sees to it that the poller is ready when frames arrive, for a thread that is about to sleep until then.
    fn arm_lanes(&self) {
        if let Some(lanes) = self.lanes() {
            lanes.arm(&self.poller);
        }
    }

    /// Waits at most `time` until data arrives. Returns whether it has.
    pub(crate) fn await_ready(&self, time: Ns) -> bool {
        self.arm_lanes();
        self.poller.await_ready(time)
    }

    /// Returns whether sockets or timers may bring work.
    #[inline]
    pub(crate) fn exist(&self) -> bool {
        self.poller.is_active() || self.timers.next() != Ns::MAX
    }

    /// Returns when the earliest timer is due: a task's, or a lane's.
    #[inline]
    pub(crate) fn next_timer(&self) -> Ns {
        let own = self.timers.next();
        self.lanes().map_or(own, |lanes| own.min(lanes.next_timer()))
    }

    /// Returns whether a timer is due. A worker that spins asks all the time: the clock is read only if there is one.
    #[inline]
    pub(crate) fn has_due_timer(&self) -> bool {
        let next = self.next_timer();
        next != Ns::MAX && next <= clock::now()
    }

    /// Returns whether data waits. Takes a system call, unless a lane has frames.
    pub(crate) fn is_ready(&self) -> bool {
        self.lanes().is_some_and(Lanes::are_ready) || self.poller.is_ready()
    }

    /// Wakes the tasks and futures whose timer has expired or whose data has arrived. Returns whether there were any.
    /// Beside lanes the kernel's sockets are polled once in a while only.
    pub(crate) fn take(&self) -> bool {
        self.take_if(|| self.lanes().is_none_or(Lanes::is_kernel_due))
    }

    /// As [`Inputs::take`], with the kernel's sockets in any case.
    pub(crate) fn take_all(&self) -> bool {
        self.take_if(|| true)
    }

    /// Takes from timers and lanes, then from the kernel if its sockets are due.
    fn take_if(&self, is_kernel_due: impl FnOnce() -> bool) -> bool {
        let mut woken = self.fire_timers() | self.lanes().is_some_and(Lanes::take);
        if is_kernel_due() && self.poller.is_active() {
            woken |= self.poller.poll(Some(Ns::ZERO)).is_some_and(|reports| reports > 0);
            woken |= self.fire_timers();
        }
        woken
    }

    fn fire_timers(&self) -> bool {
        if self.timers.next() == Ns::MAX {
            return false;
        }
        let now = clock::now();
        let mut any = false;
        while let Some(fired) = self.timers.pop_due(now) {
            match fired {
                Fired::Task(task) => wake(task),
                Fired::Future(waker) => waker.into_iter().for_each(call_waker),
            }
            any = true;
        }
        any
    }

    /// Wakes the futures that sleep, and lets no other sleep here. The runtime is over.
    pub(crate) fn close_timers(&self) {
        let _guard = NoPreempt::new();
        self.timers.close(Waker::wake);
    }

    /// Returns whether the ticker is asleep in the poll.
    pub(super) fn are_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// For the ticker: runs `wait`, during which it polls sockets and timers.
    pub(crate) fn while_watched<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.watched.store(true, Ordering::Relaxed);
        let result = wait();
        self.watched.store(false, Ordering::Relaxed);
        result
    }
}

impl Driver for Inputs {
    fn attend(&self, wanted: impl FnOnce() -> bool, at_most: Ns) -> bool {
        let timed = Cell::new(false);
        let timeout = || {
            self.arm_lanes();
            match self.next_timer() {
                Ns::MAX => Some(at_most).filter(|&time| time != Ns::MAX),
                next => {
                    // Set only while the ticker sleeps here: child threads of tasks inherit the thread's timer slack.
                    timed.set(true);
                    thread::set_timer_slack(Some(Ns(1)));
                    Some((next - clock::now()).min(at_most))
                }
            }
        };
        let attended = self.poller.attend(wanted, timeout);
        if timed.get() {
            thread::set_timer_slack(None);
        }
        attended
    }

    fn is_attended(&self) -> bool {
        self.poller.is_attended()
    }

    fn ring(&self) {
        self.poller.ring();
    }
}
