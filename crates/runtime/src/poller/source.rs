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
//! A source that is removed has no waiters: they borrow the handle whose drop removes it.

use crate::sync::{Cancellable, WaitQueue};
use heddle_core::Ns;
use heddle_sync::ReadyWord;
use heddle_sys::epoll::{BROKEN, READ, WRITE};
use std::io;

/// One direction of a descriptor. Its `ReadyWord` is model-checked: no edge is lost.
#[derive(Default)]
struct Direction {
    ready: ReadyWord,
    waiters: WaitQueue,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Source {
    read: Direction,
    write: Direction,
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
            let seen = direction.ready.look();
            match op() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => {
                    // An edge wakes one waiter only. There may be more data: pass it on.
                    if direction.waiters.has_waiters() && direction.ready.is_ready() {
                        direction.waiters.wake_one();
                    }
                    return Some(done);
                }
            }
            direction.ready.found_nothing(seen);
            if !in_time {
                return None;
            }
            let not_ready = || !direction.ready.is_ready();
            in_time = direction.waiters.wait_while(not_ready, Cancellable(deadline));
        }
    }

    /// Reports the readiness that the system saw. Preemption is off.
    pub(super) fn report(&self, ready: u32) {
        for (bit, direction) in [(READ, &self.read), (WRITE, &self.write)] {
            if ready & (bit | BROKEN) != 0 {
                direction.ready.report();
                // A broken descriptor concerns all its waiters.
                if ready & BROKEN != 0 {
                    direction.waiters.wake_all();
                } else {
                    direction.waiters.wake_one();
                }
            }
        }
    }
}
