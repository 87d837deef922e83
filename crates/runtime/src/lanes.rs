//! The lanes of the runtime's own network: who looks at them, and what follows.
//!
//! Each worker has a lane (`heddle_netstack`). Its frames are taken by
//!
//! - the worker itself, where it looks at its inputs: every 61 direct switches, after a preemption, and when it has
//!   nothing to run;
//! - a task on it that receives and finds nothing: it runs to completion, without a wake-up;
//! - any worker that has nothing to run, the ticker, and the dispatcher: for a worker that computes or is blocked.
//!
//! That frames wait is seen in memory, without a system call, so no task is interrupted for a ring that is empty. A
//! worker sleeps in the runtime's epoll instance, in which the descriptors of all lanes are armed then.
//!
//! Frames to send that wait for others (`heddle_netstack::lane`) are sent where a worker's loop runs, and by the
//! ticker.

use crate::poller::{Poller, Registration, report};
use crate::preempt::NoPreempt;
use crate::worker::Worker;
use heddle_core::Ns;
use heddle_netstack::diag::Diag;
use heddle_netstack::lane::{BATCH, Lane, Woken};
use heddle_netstack::net::Net;
use heddle_netstack::options::Spin;
use heddle_sys::clock;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(crate) struct Lanes {
    /// Shows them to other processes (`heddle net`). It ends before they do.
    _diag: Option<Diag>,
    net: Arc<Net>,
    /// When the kernel's sockets were last polled while a worker had lanes to look at; a time stamp.
    polled_at: AtomicU64,
    /// The lanes' descriptors in the poller; nothing waits for these.
    registrations: Vec<Registration>,
}

/// Time between two polls of the kernel's sockets, which take a system call, unless a worker has nothing to do and
/// sleeps in one.
const KERNEL_PERIOD: Ns = Ns::from_us(20);

/// Batches of frames that are taken from a lane before other work gets its turn.
const MAX_BATCHES: usize = 4;

impl Lanes {
    /// Returns the lanes of `net`, whose descriptors `poller` watches from now on. Other processes see them if `seen`,
    /// unless there is no folder or no descriptor for that: the lanes work without.
    ///
    /// # Errors
    /// The system's, if a limit on descriptors is reached.
    pub(crate) fn new(net: Arc<Net>, poller: &Poller, seen: bool) -> io::Result<Lanes> {
        let descriptors = net.lanes().iter().flat_map(Lane::descriptors);
        let registrations = descriptors.map(|fd| poller.add_once(fd)).collect::<io::Result<_>>()?;
        let polled_at = AtomicU64::new(0);
        let _diag = if seen { Diag::start(&net).ok() } else { None };
        Ok(Lanes { _diag, net, polled_at, registrations })
    }

    /// Returns the network.
    pub(crate) fn net(&self) -> &Arc<Net> {
        &self.net
    }

    /// Returns whether frames wait in any lane.
    #[inline]
    pub(crate) fn are_ready(&self) -> bool {
        self.net.lanes().iter().any(Lane::is_ready)
    }

    /// Has `poller` report frames, for a thread that is about to sleep. Others see them in memory, and an armed
    /// descriptor costs time with each frame.
    pub(crate) fn arm(&self, poller: &Poller) {
        let descriptors = self.net.lanes().iter().flat_map(Lane::descriptors);
        for (registration, fd) in self.registrations.iter().zip(descriptors) {
            poller.arm_again(registration, fd);
        }
    }

    /// Has the frames sent that wait for those of tasks that were about to run (`ambient::are_more_expected`).
    #[inline]
    pub(crate) fn send_waiting(&self) {
        self.net.lanes().iter().for_each(|lane| lane.send_waiting(clock::now));
    }

    /// Returns when the earliest timer of any lane is due.
    #[inline]
    pub(crate) fn next_timer(&self) -> Ns {
        self.net.lanes().iter().map(Lane::deadline).min().unwrap_or(Ns::MAX)
    }

    /// Takes what has arrived, first that of the caller's lane, and lets timers expire; wakes the tasks and futures.
    /// Returns whether there was anything, or still is.
    pub(crate) fn take(&self) -> bool {
        let _guard = NoPreempt::new();
        let (own, count) = (own_of(&self.net), self.net.lanes().len());
        (0..count).fold(false, |any, at| take_from(&self.net, (own + at) % count) | any)
    }

    /// Returns whether the kernel's sockets are due for a poll.
    pub(crate) fn is_kernel_due(&self) -> bool {
        let now = clock::ticks();
        let polled_at = self.polled_at.load(Ordering::Relaxed);
        let due = now.saturating_sub(polled_at) >= clock::ns_to_ticks(KERNEL_PERIOD);
        if due {
            self.polled_at.store(now, Ordering::Relaxed);
        }
        due
    }

    /// Returns whether a worker that has had nothing to do since `idle_since` (a time stamp, 0 if it has just become
    /// idle) looks again instead of parking. Looks for a while first, unless something `is_work`.
    pub(crate) fn spins(&self, idle_since: &Cell<u64>, is_work: impl Fn() -> bool) -> bool {
        let spin = match self.net.options().spin {
            Spin::For(Ns::ZERO) => return false,
            Spin::For(time) => clock::ns_to_ticks(time),
            Spin::Forever => u64::MAX,
        };
        let now = clock::ticks();
        if idle_since.get() == 0 {
            idle_since.set(now);
        }
        let until = now.saturating_add(clock::ns_to_ticks(KERNEL_PERIOD));
        while clock::ticks() < until {
            if self.are_ready() || is_work() {
                return true;
            }
            std::hint::spin_loop();
        }
        until.saturating_sub(idle_since.get()) < spin
    }
}

/// Returns the index of the lane of `net` that the caller uses: its worker's, or one for all other threads. Preemption
/// is off for as long as it matters.
pub(crate) fn own_of(net: &Net) -> usize {
    // A worker of another runtime has an index as well: all lanes send.
    Worker::here().map_or(0, |worker| worker.cpu().min(net.lanes().len() - 1))
}

/// Checks that the calling process may use the lanes of `net`.
///
/// # Errors
/// It is the child of a fork, which shares their rings with its parent.
#[inline]
pub(crate) fn check(net: &Net) -> io::Result<()> {
    if net.is_ours() { Ok(()) } else { Err(io::Error::other(OF_PARENT)) }
}

/// What a child gets to read.
const OF_PARENT: &str = "the lanes belong to the process that has forked this one";

/// Takes what has arrived in the lane of `net` that the caller uses. Preemption is off.
pub(crate) fn take_own(net: &Net) -> bool {
    take_from(net, own_of(net))
}

/// Takes what has arrived in lane `number` of `net`, and lets its timers expire. Returns whether there was anything, or
/// still is. Preemption is off.
pub(crate) fn take_from(net: &Net, number: usize) -> bool {
    let lane = &net.lanes()[number];
    if !lane.is_ready() && lane.deadline() == Ns::MAX {
        return false;
    }
    let (mut woken, mut any) = (Woken::default(), false);
    for _ in 0..MAX_BATCHES {
        let now = clock::now();
        if !lane.is_ready() && lane.deadline() > now {
            break;
        }
        any = true;
        let frames = net.poll(number, now, &mut woken);
        woken.drain(report);
        if frames < BATCH {
            break;
        }
    }
    any
}
