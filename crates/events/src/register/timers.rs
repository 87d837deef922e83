//! Timers.

use crate::ids::EventId;
use crate::slot::flag;
use crate::sources::TimerStart;
use crate::sources::timers::Timers;
use crate::{EventError, EventOptions, EventQueue};
use heddle_core::Ns;
use heddle_sys::clock;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

fn check_period(every: Option<Duration>) -> Result<Option<Ns>, EventError> {
    match every {
        Some(Duration::ZERO) => {
            Err(EventError::Range { what: "the period", given: 0, allowed: "1 ns or more" })
        }
        other => Ok(other.map(Ns::from)),
    }
}

impl EventQueue {
    /// Registers a timer that expires at `first` and then, if `every` is given, with that period. It is
    /// reported like any event, to the thread that the policy chooses. [`Event::data`](crate::Event::data) is
    /// how often it expired since the last report. Without a period it stays registered, and
    /// [`EventQueue::set_timer`] sets it again.
    ///
    /// It is never reported early, and a periodic timer does not drift. The clock is that of
    /// [`Instant`](std::time::Instant), which cannot be set.
    ///
    /// ```
    /// # use heddle_events::{EventOptions, EventQueue};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = EventQueue::new()?;
    /// let tick = Duration::from_millis(1);
    /// let timer = queue.register_timer(tick, Some(tick), 7, EventOptions::default())?;
    /// let mut worker = queue.worker()?;
    /// let event = worker.wait(None)?.next().ok_or("none")?;
    /// assert!(event.token() == 7 && event.data() >= 1);
    /// queue.deregister(timer)?;
    /// # drop(event);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EventError::Full`]; [`EventError::Range`] for a period of zero; [`EventError::System`] if no
    /// descriptors are left for the first timer of a queue.
    pub fn register_timer(
        &self,
        first: impl Into<TimerStart>,
        every: Option<Duration>,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let every = check_period(every)?;
        self.0.open_timers()?;
        let id = self.0.begin_source(flag::TIMER, -1, token, options)?;
        self.0.sources.timers.lock().unwrap().schedule(id, first.into().on_clock(), every);
        Ok(id)
    }

    /// Sets a timer anew, from any thread. Expirations that were not reported are forgotten; if a thread is
    /// being given the event at that moment, its count is zero. Makes no system call unless the timer becomes
    /// the queue's earliest.
    ///
    /// # Errors
    /// [`EventError::Ended`], also if `id` is not a timer; [`EventError::PinnedThreadGone`];
    /// [`EventError::Range`] for a period of zero.
    pub fn set_timer(
        &self,
        id: EventId,
        first: impl Into<TimerStart>,
        every: Option<Duration>,
    ) -> Result<(), EventError> {
        let every = check_period(every)?;
        let mut timers = self.timer(id)?;
        timers.schedule(id, first.into().on_clock(), every);
        Ok(())
    }

    /// Stops a timer, which stays registered. Expirations that were not reported are forgotten, as with
    /// [`EventQueue::set_timer`].
    ///
    /// # Errors
    /// As [`EventQueue::set_timer`].
    pub fn stop_timer(&self, id: EventId) -> Result<(), EventError> {
        self.timer(id)?.forget(id);
        Ok(())
    }

    /// Sets how long nothing may come to a descriptor before its event is reported all the same, for which
    /// [`Event::is_idle`](crate::Event::is_idle) is true; `None` ends that. It is reported as any event is: to one
    /// thread at a time, again after each further time limit, and not while the event is turned off. With
    /// [`EventOptions::once`] it is the one report. The time counts from this call, and from each report.
    ///
    /// It costs each report of the event a reading of the clock, and the queue a look at it in each limit, so it is
    /// cheaper than a timer per connection that each request sets anew.
    ///
    /// ```
    /// # use heddle_events::{EventOptions, EventQueue, Interest};
    /// # use std::os::unix::net::UnixStream;
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = EventQueue::new()?;
    /// let (server, _client) = UnixStream::pair()?;
    /// let id = queue.register(&server, Interest::READ, 7, EventOptions::default())?;
    /// queue.set_idle_limit(id, Some(Duration::from_millis(1)))?;
    /// let mut worker = queue.worker()?;
    /// let event = worker.wait(None)?.next().ok_or("none")?;
    /// assert!(event.token() == 7 && event.is_idle() && !event.is_readable());
    /// # drop(event);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EventError::Ended`], also if `id` is not a descriptor's that the system watches;
    /// [`EventError::PinnedThreadGone`]; [`EventError::Range`] for a limit of zero; [`EventError::System`] if no
    /// descriptors are left for the first timer of a queue.
    pub fn set_idle_limit(&self, id: EventId, limit: Option<Duration>) -> Result<(), EventError> {
        let slot = self.0.reachable(id)?;
        let limit = match limit.map(Ns::from) {
            Some(Ns::ZERO) => {
                let what = "the idle limit";
                return Err(EventError::Range { what, given: 0, allowed: "1 ns or more" });
            }
            limit => limit,
        };
        self.0.open_timers()?;
        let mut timers = self.0.sources.timers.lock().unwrap();
        let is_watched =
            slot.fd.load(Relaxed) >= 0 && !slot.has(flag::KIND | flag::PUMP | flag::ALWAYS);
        if !is_watched || !slot.state.is_alive(id.generation) {
            return Err(EventError::Ended);
        }
        let Some(limit) = limit else {
            slot.flags.fetch_and(!flag::IDLE_LIMIT, Relaxed);
            timers.forget(id);
            return Ok(());
        };
        let now = clock::now();
        slot.active.store(now.0, Relaxed);
        slot.flags.fetch_or(flag::IDLE_LIMIT, Relaxed);
        timers.schedule(id, now + limit, Some(limit));
        Ok(())
    }

    /// Locks the timers and clears the data of `id`, which is a timer and alive while they are locked (S1).
    fn timer(&self, id: EventId) -> Result<MutexGuard<'_, Timers>, EventError> {
        let slot = self.0.reachable(id)?;
        let timers = self.0.sources.timers.lock().unwrap();
        if slot.kind() != flag::TIMER || !slot.state.is_alive(id.generation) {
            return Err(EventError::Ended);
        }
        slot.data.store(0, Relaxed);
        Ok(timers)
    }
}
