//! `event_base_loop`: a thread becomes a worker of the queue and runs the callbacks of the events that it is
//! given.

use crate::abi::{LOOP_NO_EXIT_ON_EMPTY, LOOP_NONBLOCK, LOOP_ONCE};
use crate::base::{Base, EXIT, LoopStart};
use crate::entry::TIMER;
use crate::threads::{self, BELL, ThreadCounters};
use heddle_events::{EventError, Fired, Worker};
use libc::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a loop ended, in libevent's numbers.
const ENDED: c_int = 0;
const EMPTY: c_int = 1;

/// One thread in the loop.
struct EventLoop<'a> {
    base: &'a Arc<Base>,
    counters: Arc<ThreadCounters>,
    start: LoopStart,
    me: u64,
    flags: c_int,
}

/// Runs the loop until it is asked to end or no events are left.
pub fn run(base: &Arc<Base>, flags: c_int) -> Result<c_int, EventError> {
    let me = threads::this_thread();
    if base.threads.others(0) == 0 {
        base.got_exit.store(false, Ordering::SeqCst);
        base.got_break.store(false, Ordering::SeqCst);
    }
    let start = base.start();
    let mut worker = base.queue.worker()?;
    let counters = base.threads.enter(&base.queue, &worker).map_err(|()| EventError::Closed)?;
    let event_loop = EventLoop { base, counters, start, me, flags };
    if base.threads.have_pins() {
        base.for_each(
            |entry| entry.owner == me && entry.is_parked(),
            // A descriptor that was closed meanwhile is never ready.
            |at, entry| drop(entry.turn_on(at)),
        );
    }
    event_loop.go(&mut worker)
}

impl EventLoop<'_> {
    fn go(&self, worker: &mut Worker) -> Result<c_int, EventError> {
        let timeout = self.has(LOOP_NONBLOCK).then_some(Duration::ZERO);
        loop {
            if self.base.is_broken(self.start) || self.base.is_exited(self.start) {
                return Ok(ENDED);
            }
            if !self.has(LOOP_NO_EXIT_ON_EMPTY) && self.base.is_empty() {
                return Ok(EMPTY);
            }
            let fired = match worker.wait_held(timeout) {
                Err(EventError::Closed) => return Ok(ENDED),
                other => other?,
            };
            add(&self.counters.waits, 1);
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

    /// Runs callbacks. Returns how many.
    fn call_all(&self, fired: &[Fired]) -> usize {
        let mut called = 0;
        for (i, one) in fired.iter().enumerate() {
            if self.base.is_broken(self.start) {
                fired[i..].iter().for_each(|one| self.put_back(one));
                break;
            }
            called += usize::from(self.handle(one));
        }
        called
    }

    /// Has an event delivered again, to another thread or later. A timer only leaves a note, which is done at
    /// once.
    fn put_back(&self, fired: &Fired) {
        match fired.token {
            EXIT => {}
            token if token & TIMER != 0 => {
                self.handle(fired);
            }
            _ => drop(self.base.queue.trigger(fired.id)),
        }
    }

    /// Returns whether a callback was called.
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
        add(&self.counters.calls, 1);
        // SAFETY: the program gave this callback for the event, with this argument, and no lock is held (L4).
        unsafe { (call.callback)(call.fd, call.what, call.arg as *mut c_void) };
        self.base.finish(token);
        true
    }
}

/// Only its own thread writes a counter.
fn add(figure: &AtomicU64, what: u64) {
    figure.store(figure.load(Ordering::Relaxed) + what, Ordering::Relaxed);
}

impl Drop for EventLoop<'_> {
    /// Events that are pinned to the thread wait until it enters again.
    fn drop(&mut self) {
        if self.base.threads.leave(&self.base.queue) && self.base.threads.have_pins() {
            let me = self.me;
            self.base.for_each(|entry| entry.owner == me, |at, entry| entry.park(at));
        }
        self.base.notify_left();
    }
}
