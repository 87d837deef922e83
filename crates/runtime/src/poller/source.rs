//! One registered descriptor, and how a task waits for it.
//!
//! Sources lie in the slots of the process's table (see [`super::slab`]), which are never unmapped; the system
//! reports events under their keys. An event may be fetched before its descriptor is removed, and reported after
//! that:
//!
//! - *The slot is free by then, or has a new owner.* Its generation differs and the event is dropped.
//! - *The slot changes owners between the check and the report.* Then the new owner gets a report that is not its
//!   own: its word says "ready" and one waiter wakes, or all do if the event said that the old descriptor broke.
//!   Neither does harm: a waiter retries its operation and continues to wait if that would block, as after any edge
//!   that another task consumed, and a task that waits for a connection asks the socket for the outcome (`net::tcp`).
//!   Nothing is lost either: reports are counted, so this one cannot hide one of the new owner's.
//!
//! A source that is removed has no waiters, since they borrow the handle whose drop removes it, except futures that
//! were leaked, and a waker of the `poll` functions: [`Source::clear`] removes these before the slot gets a new owner.
//!
//! # Three kinds of waiters
//!
//! Blocking operations and the futures of `async` functions queue up; an edge wakes the first, which passes it on if
//! there is more. The functions that `poll` have no place for a node of the queue, so each direction has one slot, for
//! the waker of the latest poll. An edge wakes the slot as well as the queue: the two do not know of each other, so
//! neither must rely on the other to find what the edge announced.

use crate::carrier::call_waker;
use crate::preempt::NoPreempt;
use crate::sync::{Cancellable, QueuedWaker, WaitQueue};
use heddle_core::Ns;
use heddle_netstack::lane::Ready;
use heddle_sync::{ReadyWord, WakerSlot};
use heddle_sys::epoll::{BROKEN, READ, WRITE};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// One direction of a descriptor. Its `ReadyWord` is model-checked: no edge is lost.
#[derive(Default)]
struct Direction {
    ready: ReadyWord,
    waiters: WaitQueue,
    polled: WakerSlot<Waker>,
}

impl Direction {
    /// Tries `op` once, or again if a signal interrupted it. `None` if it found nothing, which is recorded.
    #[inline(always)]
    fn attempt<R>(&self, op: &mut impl FnMut() -> io::Result<R>) -> Option<io::Result<R>> {
        let seen = loop {
            let seen = self.ready.look();
            match op() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break seen,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    // An edge wakes one waiter only. There may be more data: pass it on.
                    if self.waiters.has_waiters() && self.ready.is_ready() {
                        self.waiters.wake_one();
                    }
                    return Some(done);
                }
            }
        };
        self.ready.found_nothing(seen);
        None
    }

    /// Whether `waker` is in the slot.
    fn holds(&self, waker: &Waker) -> bool {
        let _guard = NoPreempt::new();
        self.polled.holds(|own| own.will_wake(waker))
    }

    /// Puts a clone of `waker` into the slot.
    fn put(&self, waker: &Waker) {
        let waker = waker.clone();
        let before = {
            let _guard = NoPreempt::new();
            self.polled.put(waker)
        };
        drop(before);
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Source {
    read: Direction,
    write: Direction,
    /// The system has reported since the descriptor was last asked, for those that have other sources as well. A new
    /// owner of the slot asks once for nothing.
    asks_kernel: AtomicBool,
}

/// The direction in which a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// For something to read, or the end.
    Read,
    /// For room to write.
    Write,
}

impl Source {
    fn direction(&self, interest: Interest) -> &Direction {
        match interest {
            Interest::Read => &self.read,
            Interest::Write => &self.write,
        }
    }

    /// Runs `op` until it returns something other than `WouldBlock`, and sleeps in between until the descriptor is
    /// ready. Returns `None` once `deadline` has passed, after trying `op` once more.
    pub(crate) fn run<R>(
        &self,
        interest: Interest,
        deadline: Option<Ns>,
        mut op: impl FnMut() -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        let direction = self.direction(interest);
        let mut in_time = true;
        loop {
            let done = direction.attempt(&mut op);
            if done.is_some() || !in_time {
                return done;
            }
            let not_ready = || !direction.ready.is_ready();
            in_time = direction.waiters.wait_while(not_ready, Cancellable(deadline));
        }
    }

    /// Runs `op` until it returns something other than `WouldBlock`; in between the future waits in the queue. If it is
    /// dropped, it passes an edge on that it has not used.
    pub(crate) async fn run_async<R>(
        &self,
        interest: Interest,
        mut op: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let direction = self.direction(interest);
        let mut wait = pin!(QueuedWaker::new(&direction.waiters));
        let mut attempt = || direction.attempt(&mut op);
        poll_fn(|cx| wait.as_mut().poll_until(cx, &mut attempt, || !direction.ready.is_ready()))
            .await
    }

    /// Runs `op`; if it returns `WouldBlock`, the waker of `cx` is called once that may have changed. The latest waker
    /// counts.
    pub(crate) fn poll_io<R>(
        &self,
        interest: Interest,
        cx: &Context<'_>,
        mut op: impl FnMut() -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let direction = self.direction(interest);
        loop {
            // If a poll found nothing and there was no edge since, there is nothing now.
            if (!direction.polled.is_set() || direction.ready.is_ready())
                && let Some(done) = direction.attempt(&mut op)
            {
                return Poll::Ready(done);
            }
            if !direction.holds(cx.waker()) {
                direction.put(cx.waker());
            }
            // Under the lock that `report` takes between the two things that it does.
            if direction.waiters.look(|| !direction.ready.is_ready()) {
                return Poll::Pending;
            }
        }
    }

    /// Runs `op`, which asks the descriptor, if the system has reported anything since it was found to have nothing.
    ///
    /// # Errors
    /// `WouldBlock` if it has nothing; those of `op`.
    pub(crate) fn ask_kernel<R>(&self, op: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let is_reported = self.asks_kernel.load(Ordering::Relaxed)
            && self.asks_kernel.swap(false, Ordering::Acquire);
        if !is_reported {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let found = op();
        if !matches!(&found, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            // There may be more.
            self.asks_kernel.store(true, Ordering::Release);
        }
        found
    }

    /// Forgets wakers that were left behind, for the next owner. Wakes nothing that still waits.
    pub(super) fn clear(&self) {
        for direction in [&self.read, &self.write] {
            if direction.waiters.has_waiters() {
                direction.waiters.wake_all();
            }
            drop(direction.polled.take());
        }
    }

    /// Reports the readiness that the system saw. Preemption is off.
    pub(super) fn report(&self, ready: u32) {
        self.asks_kernel.store(true, Ordering::Release);
        let (read, write) = (ready & READ != 0, ready & WRITE != 0);
        self.wake(Ready { read, write, broken: ready & BROKEN != 0 });
    }

    /// Wakes those that wait for what the socket is ready for. Preemption is off.
    pub(super) fn wake(&self, ready: Ready) {
        for (is_ready, direction) in [(ready.read, &self.read), (ready.write, &self.write)] {
            if is_ready || ready.broken {
                direction.ready.report();
                // A broken descriptor concerns all its waiters.
                if ready.broken {
                    direction.waiters.report_to_all();
                } else {
                    direction.waiters.report_to_one();
                }
                if let Some(waker) = direction.polled.take() {
                    call_waker(waker);
                }
            }
        }
    }
}
