//! What a base knows of a `struct event`, from when it is added until it is neither added nor handled.
//!
//! ```text
//!               add                 told, not persistent; del
//!   (nothing) -------> added ------------------------------> (nothing)
//!                        |  told                    ^
//!                        +------> running ----------+ the function has returned, and nobody has added it anew
//! ```

use crate::abi::{Call, ET, HIGH, PERSIST, PIN, READ, SIGNAL, TIMEOUT, WRITE};
use crate::seat::{self, Seats};
use crate::signals::Signal;
use heddle_core::Ns;
use heddle_events::{EventError, EventId, EventOptions, EventQueue, Fired, Interest};
use libc::{c_int, c_short};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What tells a timer from the event it belongs to: addresses of events are even.
pub const TIMER: u64 = 1;

/// One event of a base. All of it is under the lock of its shard.
#[derive(Default)]
pub struct Entry {
    pub call: Option<Call>,
    /// In libevent's words: pending.
    pub added: bool,
    /// What has happened to it and was not told: timeouts, signals, what `event_active` said.
    pub result: c_short,
    /// After how long without an event it is told [`TIMEOUT`].
    timeout: Option<Duration>,
    /// When that is.
    pub deadline: Option<Instant>,
    /// The thread that runs the function, or 0.
    pub running: u64,
    /// Tells one run from the next.
    pub run: u64,
    /// The thread that it is pinned to, or 0.
    pub owner: u64,
    /// The registration (L3).
    on: Option<EventId>,
    /// It was registered while the function ran, and is turned on when that has ended (L2).
    is_off: bool,
    timer: Option<EventId>,
    /// What the registration watches, where that is not the program's descriptor itself.
    copy: Option<OwnedFd>,
    signal: Option<Signal>,
}

/// Where an entry's registrations are made.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub queue: &'a EventQueue,
    pub seats: &'a Seats,
    /// What the queue calls the entry: its event's address.
    pub token: u64,
}

fn system(source: io::Error) -> EventError {
    EventError::System { what: "watch a descriptor", source }
}

impl Entry {
    /// Whether something of it is to come: while that is so for any event, loops go on.
    pub fn is_alive(&self) -> bool {
        self.added || self.result != 0 || self.running != 0
    }

    /// Adds the event, or gives it another timeout.
    pub fn add(
        &mut self,
        at: At<'_>,
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
            // A timeout that was not told yet is the old one's.
            self.result &= !TIMEOUT;
            return self.expect(at, Instant::now() + timeout);
        }
        Ok(())
    }

    /// The calling thread owns it, if it is to be pinned.
    fn own(&mut self, at: At<'_>, call: &Call) {
        self.owner = 0;
        if call.has(PIN) {
            self.owner = seat::this_thread();
            at.seats.pin();
        }
    }

    /// It is not pending any more, and not told what has happened.
    pub fn remove(&mut self, at: At<'_>) {
        self.turn_off(at);
        (self.added, self.result) = (false, 0);
    }

    /// It happened, as the program or a timeout says. An event that is not added is told once all the same.
    pub fn activate(
        &mut self,
        at: At<'_>,
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

    fn trigger(&self, at: At<'_>) {
        if let Some(id) = self.on {
            // Fails only where the base ends.
            let _ = at.queue.trigger(id);
        }
    }

    /// Registers it. One that is pinned to a thread which is in no loop waits for that.
    pub fn turn_on(&mut self, at: At<'_>) -> Result<(), EventError> {
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

    /// None if its thread is in no loop.
    fn options(&self, at: At<'_>, call: &Call) -> Option<EventOptions> {
        let pinned = if self.owner == 0 { Some(EventOptions::default()) } else { None };
        let mut options = pinned.or_else(|| at.seats.pinned_to(self.owner))?;
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
        at: At<'_>,
        number: c_int,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        let signal = Signal::new(number).map_err(system)?;
        let id = at.queue.register(&signal.fd(), Interest::READ, at.token, options)?;
        self.signal = Some(signal);
        Ok(id)
    }

    /// Several events may be on one descriptor in libevent; the queue knows a descriptor once, so the others watch a copy.
    fn register_fd(
        &mut self,
        at: At<'_>,
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
        // SAFETY: the number is not negative, and is used for one call, which fails if nothing is behind it.
        let fd = unsafe { BorrowedFd::borrow_raw(call.fd) };
        let copy = fd.try_clone_to_owned().map_err(system)?;
        let id = at.queue.register(&copy.as_raw_fd(), interest, at.token, options)?;
        self.copy = Some(copy);
        Ok(id)
    }

    /// Ends the registrations: nothing is told of it any more when this returns, and its descriptor may be closed.
    pub fn turn_off(&mut self, at: At<'_>) {
        self.deadline = None;
        self.park(at);
        if let Some(id) = self.timer.take() {
            let _ = at.queue.deregister(id);
        }
    }

    /// Ends the registration that is told; the timeout goes on.
    pub fn park(&mut self, at: At<'_>) {
        if let Some(id) = self.on.take() {
            let _ = at.queue.deregister(id);
        }
        self.is_off = false;
        (self.copy, self.signal) = (None, None);
    }

    /// Whether it waits for its thread to come into a loop.
    pub fn is_parked(&self) -> bool {
        self.owner != 0 && self.on.is_none() && (self.added || self.result != 0)
    }

    /// Sets the deadline. A timer that is set to an earlier time is left: what comes too early is set again then, and an event that is
    /// busy costs no change of timers.
    fn expect(&mut self, at: At<'_>, deadline: Instant) -> Result<(), EventError> {
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
    pub fn expired(&mut self, at: At<'_>, id: EventId) {
        let Some(deadline) = self.deadline.filter(|_| self.timer == Some(id)) else { return };
        if Instant::now() < deadline {
            let _ = at.queue.set_timer(id, deadline, None);
            return;
        }
        self.deadline = None;
        let _ = self.activate(at, None, TIMEOUT);
    }

    /// The thread `me` was given the registration. What to call, with what; `None` if there is nothing to be told.
    pub fn begin(&mut self, at: At<'_>, fired: &Fired, me: u64, run: u64) -> Option<Call> {
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
            None if self.added => what |= told(ready) & call.what & (READ | WRITE),
            None => {}
        }
        what
    }

    /// The function has returned.
    pub fn finish(&mut self, at: At<'_>) {
        self.running = 0;
        if let Some(id) = self.on.filter(|_| self.is_off) {
            self.is_off = false;
            // Fails only where the base ends.
            let _ = at.queue.turn_on(id);
        }
    }

    /// What `event_pending` says, of what it may: what it waits for, and what was not told yet.
    pub fn pending(&self) -> c_short {
        let waits = match self.call {
            Some(call) if self.added => call.what & (READ | WRITE | SIGNAL),
            _ => 0,
        };
        let times = if self.deadline.is_some() { TIMEOUT } else { 0 };
        waits | times | self.result
    }
}

/// What a descriptor is ready for, in libevent's words: what is broken can be read and written, for that tells what is wrong.
fn told(ready: u32) -> c_short {
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

/// For `event_pending`: when the timeout is, by the clock that programs read.
pub fn on_wall(deadline: Instant) -> Ns {
    let left = deadline.saturating_duration_since(Instant::now());
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ns::from(wall.unwrap_or_default() + left)
}
