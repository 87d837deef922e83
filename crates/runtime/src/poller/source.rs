//! One registered descriptor, and how a task waits for it.
//!
//! Sources lie in slots of one table of the process (see [`super::slab`]), which are never unmapped; the system reports
//! events under their key. An event may have been fetched before its descriptor was removed, and reported after:
//!
//! - *The slot is free or has a new owner by then.* Its generation is another one and the event is dropped.
//! - *The slot changes hands between the check and the report.* Then the new owner gets a report that is not its own:
//!   its word says "ready" and one waiter wakes, or all if the event said that the old descriptor broke. Neither does harm.
//!   A waiter tries its operation again and waits on if that would block, as after any edge that another task used up;
//!   and whoever waits for a connection asks the socket for the outcome (`net::connect`). Nothing is lost by it either: a
//!   report counts up, so it cannot cover one of the new owner's own.
//!
//! A source that is removed has no waiters: they borrow the socket that removes it when dropped.

use crate::sync::{Cancellable, WaitQueue};
use heddle_core::Ns;
use heddle_sync::ReadyWord;
use heddle_sys::epoll::{BROKEN, READ, WRITE};
use std::io;

/// One direction of a descriptor. That no edge is lost is model-checked in `heddle-sys`.
#[derive(Default)]
struct Direction {
    ready: ReadyWord,
    waiters: WaitQueue,
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Source {
    read: Direction,
    write: Direction,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the end.
    Read,
    /// Room to write.
    Write,
}

impl Source {
    fn direction(&self, interest: Interest) -> &Direction {
        match interest {
            Interest::Read => &self.read,
            Interest::Write => &self.write,
        }
    }

    /// Runs `op` until it does not report `WouldBlock`, sleeping in between until the descriptor is ready. `None` once
    /// `deadline` has passed; even then `op` is tried once more, so that what is there is taken.
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
                    // There may be more: an edge wakes one waiter only, so pass it on.
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

    /// The system says that the descriptor is `ready`. Preemption is off.
    pub(super) fn report(&self, ready: u32) {
        for (bit, direction) in [(READ, &self.read), (WRITE, &self.write)] {
            if ready & (bit | BROKEN) != 0 {
                direction.ready.report();
                // A broken descriptor concerns everybody who waits on it.
                if ready & BROKEN != 0 {
                    direction.waiters.wake_all();
                } else {
                    direction.waiters.wake_one();
                }
            }
        }
    }
}
