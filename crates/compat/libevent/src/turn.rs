//! `event_base_loop`: a thread becomes a worker of the queue and calls the functions of the events that it is given.

use crate::abi::{LOOP_NO_EXIT_ON_EMPTY, LOOP_NONBLOCK, LOOP_ONCE};
use crate::base::{Base, Begun, EXIT};
use crate::entry::TIMER;
use crate::seat::{self, Account, BELL};
use heddle_events::{EventError, Fired, Worker};
use libc::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a loop ended, as libevent numbers it.
const ENDED: c_int = 0;
const EMPTY: c_int = 1;

/// A thread's way through the loop.
struct Turn<'a> {
    base: &'a Arc<Base>,
    account: Arc<Account>,
    begun: Begun,
    me: u64,
    flags: c_int,
}

/// Runs the loop until it is told to end, or no event is left.
pub fn run(base: &Arc<Base>, flags: c_int) -> Result<c_int, EventError> {
    let me = seat::this_thread();
    if base.seats.others(0) == 0 {
        base.got_exit.store(false, Ordering::SeqCst);
        base.got_break.store(false, Ordering::SeqCst);
    }
    let begun = base.begun();
    let mut worker = base.queue.worker()?;
    let account = base.seats.sit(&base.queue, &worker).map_err(|()| EventError::Closed)?;
    let turn = Turn { base, account, begun, me, flags };
    if base.seats.have_pins() {
        base.for_each(
            |entry| entry.owner == me && entry.is_parked(),
            // A descriptor that was closed meanwhile is never ready.
            |at, entry| drop(entry.turn_on(at)),
        );
    }
    turn.go(&mut worker)
}

impl Turn<'_> {
    fn go(&self, worker: &mut Worker) -> Result<c_int, EventError> {
        let timeout = self.has(LOOP_NONBLOCK).then_some(Duration::ZERO);
        loop {
            if self.base.is_broken(self.begun) || self.base.is_exited(self.begun) {
                return Ok(ENDED);
            }
            if !self.has(LOOP_NO_EXIT_ON_EMPTY) && self.base.is_empty() {
                return Ok(EMPTY);
            }
            let fired = match worker.wait_held(timeout) {
                Err(EventError::Closed) => return Ok(ENDED),
                other => other?,
            };
            add(&self.account.waits, 1);
            let called = self.call_all(fired);
            let is_over = match self.has(LOOP_NONBLOCK) {
                true => called > 0 || fired.is_empty(),
                false => called > 0 && self.has(LOOP_ONCE),
            };
            if is_over {
                return Ok(ENDED);
            }
        }
    }

    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// How many functions were called.
    fn call_all(&self, fired: &[Fired]) -> usize {
        let mut called = 0;
        for (i, one) in fired.iter().enumerate() {
            if self.base.is_broken(self.begun) {
                fired[i..].iter().for_each(|one| self.put_back(one));
                break;
            }
            called += usize::from(self.handle(one));
        }
        called
    }

    /// What was not looked at is told again, to others or later. A timer only leaves a note: that is done at once.
    fn put_back(&self, fired: &Fired) {
        match fired.token {
            EXIT => {}
            token if token & TIMER != 0 => {
                self.handle(fired);
            }
            _ => drop(self.base.queue.trigger(fired.id)),
        }
    }

    /// Whether a function was called.
    fn handle(&self, fired: &Fired) -> bool {
        match fired.token {
            BELL => false,
            EXIT => {
                self.base.exit();
                false
            }
            token if token & TIMER != 0 => {
                self.base.with(token & !TIMER, |at, entry| entry.expired(at, fired.id));
                false
            }
            token => self.call(token, fired),
        }
    }

    fn call(&self, token: u64, fired: &Fired) -> bool {
        let Some(call) = self.base.begin(token, fired, self.me) else { return false };
        add(&self.account.calls, 1);
        // SAFETY: the program gave this function for the event, with this argument, and no lock is held (L4).
        unsafe { (call.callback)(call.fd, call.what, call.arg as *mut c_void) };
        self.base.finish(token);
        true
    }
}

/// Only its thread writes an account.
fn add(figure: &AtomicU64, what: u64) {
    figure.store(figure.load(Ordering::Relaxed) + what, Ordering::Relaxed);
}

impl Drop for Turn<'_> {
    /// What is pinned to the thread waits until it comes again.
    fn drop(&mut self) {
        if self.base.seats.leave(&self.base.queue) && self.base.seats.have_pins() {
            let me = self.me;
            self.base.for_each(|entry| entry.owner == me, |at, entry| entry.park(at));
        }
        self.base.has_left();
    }
}
