//! A base's state of a `struct event`, from when it is added until it is neither added nor handled.
//!
//! ```text
//!               add               delivered, not persistent; del
//!   (nothing) -------> added ------------------------------> (nothing)
//!                        |  delivered               ^
//!                        +------> running ----------+ the callback has returned, and the event was not added again
//! ```

use crate::abi::{Call, ET, HIGH, PERSIST, PIN, READ, SIGNAL, TIMEOUT, WRITE};
use crate::signals::Signal;
use crate::threads::{self, LoopThreads};
use heddle_core::Ns;
use heddle_events::{EventError, EventId, EventOptions, EventQueue, Fired, Interest};
use libc::{c_int, c_short};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Distinguishes a timer from its event: addresses of events are even.
pub const TIMER: u64 = 1;

/// One event of a base, protected by the lock of its shard.
#[derive(Default)]
pub struct Entry {
    pub call: Option<Call>,
    /// Pending, in libevent's terms.
    pub added: bool,
    /// What has happened to it and was not delivered: timeouts, signals, `event_active`.
    pub result: c_short,
    /// The callback is called with [`TIMEOUT`] after this time without an event.
    timeout: Option<Duration>,
    /// When the timeout expires.
    pub deadline: Option<Instant>,
    /// The thread that runs the callback, or 0.
    pub running: u64,
    /// Distinguishes one run from the next.
    pub run: u64,
    /// The thread that it is pinned to, or 0.
    pub owner: u64,
    /// The registration (L3).
    on: Option<EventId>,
    /// It was registered while the callback was running, and is turned on when that has returned (L2).
    is_off: bool,
    timer: Option<EventId>,
    /// The descriptor that is registered, if it is not the program's own.
    copy: Option<OwnedFd>,
    signal: Option<Signal>,
}

/// Where an entry's registrations are made.
#[derive(Clone, Copy)]
pub struct EntryContext<'a> {
    pub queue: &'a EventQueue,
    pub threads: &'a LoopThreads,
    /// The queue's token for the entry: its event's address.
    pub token: u64,
}

fn system(source: io::Error) -> EventError {
    EventError::System { what: "watch a descriptor", source }
}

impl Entry {
    /// Whether it is added, active or handled; loops go on while any event is.
    pub fn is_alive(&self) -> bool {
        self.added || self.result != 0 || self.running != 0
    }

    /// Adds the event, or changes its timeout.
    pub fn add(
        &mut self,
        at: EntryContext<'_>,
        call: Call,
        timeout: Option<Duration>,
    ) -> Result<(), EventError> {
        if !self.added && (call.waits() || timeout.is_some()) {
            self.turn_off(at);
            self.call = Some(call);
            self.own(at, &call);
            self.added = true;
            if let Err(error) = self.turn_on(at) {
                self.added = false;
                self.turn_off(at);
                return Err(error);
            }
        }
        if let Some(timeout) = timeout {
            self.timeout = Some(timeout);
            // A timeout that was not delivered belongs to the old setting.
            self.result &= !TIMEOUT;
            return self.expect(at, Instant::now() + timeout);
        }
        Ok(())
    }

    /// Makes the calling thread the owner if the event is to be pinned.
    fn own(&mut self, at: EntryContext<'_>, call: &Call) {
        self.owner = 0;
        if call.has(PIN) {
            self.owner = threads::this_thread();
            at.threads.pin();
        }
    }

    /// Ends the event. What has happened is not delivered.
    pub fn remove(&mut self, at: EntryContext<'_>) {
        self.turn_off(at);
        (self.added, self.result) = (false, 0);
    }

    /// Activates the event, for the program or a timeout. An event that is not added is delivered once all
    /// the same.
    pub fn activate(
        &mut self,
        at: EntryContext<'_>,
        call: Option<Call>,
        what: c_short,
    ) -> Result<(), EventError> {
        if !self.added && self.result == 0 {
            call.iter().for_each(|call| self.own(at, call));
            self.call = call;
        }
        self.result |= what;
        if self.on.is_none() {
            self.turn_on(at)?;
        }
        self.trigger(at);
        Ok(())
    }

    fn trigger(&self, at: EntryContext<'_>) {
        if let Some(id) = self.on {
            // Fails only if the base is ending.
            let _ = at.queue.trigger(id);
        }
    }

    /// Registers the event. If it is pinned to a thread that is in no loop, it waits for that thread.
    pub fn turn_on(&mut self, at: EntryContext<'_>) -> Result<(), EventError> {
        let Some(call) = self.call else { return Ok(()) };
        let Some(options) = self.options(at, &call) else { return Ok(()) };
        self.is_off = self.running != 0;
        self.on = Some(match self.added {
            true if call.has(SIGNAL) => self.register_signal(at, call.fd, options)?,
            true if call.watches_fd() => self.register_fd(at, &call, options)?,
            _ => at.queue.register_user(at.token, options)?,
        });
        if self.result != 0 {
            self.trigger(at);
        }
        Ok(())
    }

    /// Returns None if its thread is in no loop.
    fn options(&self, at: EntryContext<'_>, call: &Call) -> Option<EventOptions> {
        let pinned = if self.owner == 0 { Some(EventOptions::default()) } else { None };
        let mut options = pinned.or_else(|| at.threads.pinned_to(self.owner))?;
        if call.has(ET) {
            options = options.edge();
        }
        if call.has(HIGH) {
            options = options.high();
        }
        Some(if self.running != 0 { options.off() } else { options })
    }

    fn register_signal(
        &mut self,
        at: EntryContext<'_>,
        number: c_int,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        let signal = Signal::new(number).map_err(system)?;
        let id = at.queue.register(&signal.fd(), Interest::READ, at.token, options)?;
        self.signal = Some(signal);
        Ok(id)
    }

    /// libevent allows several events on one descriptor, the queue allows one; the others watch a copy.
    fn register_fd(
        &mut self,
        at: EntryContext<'_>,
        call: &Call,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        let interest = match call.what & (READ | WRITE) {
            READ => Interest::READ,
            WRITE => Interest::WRITE,
            _ => Interest::BOTH,
        };
        match at.queue.register(&call.fd, interest, at.token, options) {
            Err(error) if error.errno() == libc::EEXIST => {}
            other => return other,
        }
        // SAFETY: the number is not negative, and is used for one call, which fails if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(call.fd) };
        let copy = fd.try_clone_to_owned().map_err(system)?;
        let id = at.queue.register(&copy.as_raw_fd(), interest, at.token, options)?;
        self.copy = Some(copy);
        Ok(id)
    }

    /// Ends the registrations. Once this returns nothing is delivered any more, and its descriptor may be
    /// closed.
    pub fn turn_off(&mut self, at: EntryContext<'_>) {
        self.deadline = None;
        self.park(at);
        if let Some(id) = self.timer.take() {
            let _ = at.queue.deregister(id);
        }
    }

    /// Ends the registration for delivery; the timeout keeps running.
    pub fn park(&mut self, at: EntryContext<'_>) {
        if let Some(id) = self.on.take() {
            let _ = at.queue.deregister(id);
        }
        self.is_off = false;
        (self.copy, self.signal) = (None, None);
    }

    /// Whether it waits for its thread to enter a loop.
    pub fn is_parked(&self) -> bool {
        self.owner != 0 && self.on.is_none() && (self.added || self.result != 0)
    }

    /// Sets the deadline. A timer that is set to an earlier time is left as it is and set again when it
    /// expires too early, so a busy event changes no timers.
    fn expect(&mut self, at: EntryContext<'_>, deadline: Instant) -> Result<(), EventError> {
        let is_set_earlier = self.timer.is_some() && self.deadline.is_some_and(|d| d <= deadline);
        self.deadline = Some(deadline);
        match self.timer {
            Some(_) if is_set_earlier => Ok(()),
            Some(id) => at.queue.set_timer(id, deadline, None),
            None => {
                let (token, options) = (at.token | TIMER, EventOptions::default());
                self.timer = Some(at.queue.register_timer(deadline, None, token, options)?);
                Ok(())
            }
        }
    }

    /// Its timer has expired.
    pub fn expired(&mut self, at: EntryContext<'_>, id: EventId) {
        let Some(deadline) = self.deadline.filter(|_| self.timer == Some(id)) else { return };
        if Instant::now() < deadline {
            let _ = at.queue.set_timer(id, deadline, None);
            return;
        }
        self.deadline = None;
        let _ = self.activate(at, None, TIMEOUT);
    }

    /// The thread `me` was given the registration. Returns the callback to run and what happened; None if
    /// there is nothing to deliver.
    pub fn begin(
        &mut self,
        at: EntryContext<'_>,
        fired: &Fired,
        me: u64,
        run: u64,
    ) -> Option<Call> {
        let call = self.call.filter(|_| self.on == Some(fired.id) && self.running == 0)?;
        let what = self.take_result(&call, fired.ready);
        if what == 0 {
            return None;
        }
        if !call.has(PERSIST) || !self.added {
            self.turn_off(at);
            self.added = false;
        } else if let Some(timeout) = self.timeout.filter(|_| self.has_timeout()) {
            let _ = self.expect(at, Instant::now() + timeout);
        }
        (self.running, self.run) = (me, run);
        Some(Call { what, ..call })
    }

    fn has_timeout(&self) -> bool {
        self.timer.is_some()
    }

    fn take_result(&mut self, call: &Call, ready: u32) -> c_short {
        let mut what = std::mem::take(&mut self.result);
        match &self.signal {
            Some(signal) if signal.take() > 0 => what |= SIGNAL,
            Some(_) => {}
            None if self.added => what |= readiness(ready) & call.what & (READ | WRITE),
            None => {}
        }
        what
    }

    /// The callback has returned.
    pub fn finish(&mut self, at: EntryContext<'_>) {
        self.running = 0;
        if let Some(id) = self.on.filter(|_| self.is_off) {
            self.is_off = false;
            // Fails only if the base is ending.
            let _ = at.queue.turn_on(id);
        }
    }

    /// Returns the flags for `event_pending`: what the event waits for, and what was not delivered.
    pub fn pending(&self) -> c_short {
        let waits = match self.call {
            Some(call) if self.added => call.what & (READ | WRITE | SIGNAL),
            _ => 0,
        };
        let times = if self.deadline.is_some() { TIMEOUT } else { 0 };
        waits | times | self.result
    }
}

/// Converts readiness to libevent's flags. A broken descriptor counts as readable and writable, because
/// reading or writing shows the error.
fn readiness(ready: u32) -> c_short {
    let has = |bits: c_int| ready & bits as u32 != 0;
    let broken = has(libc::EPOLLERR | libc::EPOLLHUP);
    let mut what = 0;
    if broken || has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) {
        what |= READ;
    }
    if broken || has(libc::EPOLLOUT) {
        what |= WRITE;
    }
    what
}

/// Converts a deadline to the wall clock, for `event_pending`.
pub fn on_wall(deadline: Instant) -> Ns {
    let left = deadline.saturating_duration_since(Instant::now());
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ns::from(wall.unwrap_or_default() + left)
}
