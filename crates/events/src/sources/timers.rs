//! Timers: one timerfd a queue, set to the earliest.

use super::Sources;
use super::agenda::Agenda;
use crate::error::system;
use crate::queue::Inner;
use crate::slot::{EventId, New, Table, flag};
use crate::{EventError, EventOptions, EventQueue};
use heddle_core::{Ns, Rng};
use heddle_sys::clock;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// When a timer expires first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long from now.
    After(Duration),
    /// Then; if that is over at once, and with a period as often as it would have expired since.
    At(Instant),
}

impl From<Duration> for When {
    fn from(time: Duration) -> When {
        When::After(time)
    }
}

impl From<Instant> for When {
    fn from(time: Instant) -> When {
        When::At(time)
    }
}

impl When {
    /// On the queue's clock.
    fn on_clock(self) -> Ns {
        let (instant, ns) = anchor();
        match self {
            When::After(time) => clock::now() + Ns::from(time),
            When::At(then) => match then.checked_duration_since(instant) {
                Some(later) => ns + Ns::from(later),
                None => Ns(ns.0.saturating_sub(Ns::from(instant - then).0)),
            },
        }
    }
}

/// One moment on both clocks, which are the same one in the end. The same for all timers, so that their order is that of their instants. The
/// queue's is read after the other: what follows is never too early, and too late by as long as the reading took.
fn anchor() -> (Instant, Ns) {
    static ANCHOR: OnceLock<(Instant, Ns)> = OnceLock::new();
    let read = |_| {
        let (before, instant, after) = (clock::now(), Instant::now(), clock::now());
        (after - before, (instant, after))
    };
    // The thread may be interrupted between the readings; hardly each time.
    *ANCHOR.get_or_init(|| (0..8).map(read).min_by_key(|(took, _)| *took).unwrap().1)
}

/// The timers of a queue.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    agenda: Agenda,
    descriptor: Option<OwnedFd>,
    /// To when the timerfd is set, if it has not expired.
    armed: Option<Ns>,
}

impl Timers {
    /// Sets the timerfd if the earliest timer has become earlier. One that was taken away leaves it as it is: the pump then comes for
    /// nothing once, and timeouts that are set and ended all the time cost no system calls.
    fn arm(&mut self) {
        let Some(earliest) = self.agenda.earliest() else { return };
        if self.armed.is_none_or(|armed| earliest < armed) {
            self.set(earliest);
            self.armed = Some(earliest);
        }
    }

    /// Sets the timerfd; `Ns::ZERO` disarms it. Either way it is not ready any more.
    fn set(&self, at: Ns) {
        let Some(descriptor) = &self.descriptor else { return };
        let at = Timespec {
            tv_sec: (at.0 / 1_000_000_000) as i64,
            tv_nsec: (at.0 % 1_000_000_000) as i64,
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let times = Itimerspec { it_interval: never, it_value: at };
        let set = timerfd_settime(descriptor, TimerfdTimerFlags::ABSTIME, &times);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// What is due is added to its slots' data; those to be activated (S1, S2).
    fn take_due(&mut self, table: &Table) -> Vec<EventId> {
        let (now, mut due) = (clock::now(), Vec::new());
        while let Some((key, times)) = self.agenda.take_due(now) {
            let id = EventId::from(key);
            if table.slot(id.index).add_data(times) {
                due.push(id);
            }
        }
        if self.armed.is_some_and(|armed| armed <= now) {
            self.armed = None;
            match self.agenda.earliest() {
                Some(_) => self.arm(),
                None => self.set(Ns::ZERO),
            }
        }
        due
    }

    pub fn forget(&mut self, id: EventId) {
        self.agenda.remove(id.into());
    }
}

impl Sources {
    fn set_timer(&self, id: EventId, at: Ns, every: Option<Ns>) {
        let mut timers = self.timers.lock().unwrap();
        timers.agenda.set(id.into(), at, every);
        timers.arm();
    }
}

impl Inner {
    fn open_timers(&self) -> Result<(), EventError> {
        let mut timers = self.sources.timers.lock().unwrap();
        if timers.descriptor.is_none() {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)
                .map_err(|errno| system("make a timerfd")(errno.into()))?;
            self.open_pump(&fd, flag::TIMER)?;
            timers.descriptor = Some(fd);
        }
        Ok(())
    }

    pub(super) fn pump_timers(&self, near: u32, rng: &Rng) {
        let due = self.sources.timers.lock().unwrap().take_due(&self.table);
        self.tell(due, near, rng);
    }
}

fn check_period(every: Option<Duration>) -> Result<Option<Ns>, EventError> {
    match every {
        Some(Duration::ZERO) => {
            Err(EventError::Range { what: "the period", given: 0, allowed: "1 ns or more" })
        }
        other => Ok(other.map(Ns::from)),
    }
}

impl EventQueue {
    /// A timer: expires at `first` and then `every` so often, if that is given. Told as any event, by the policy;
    /// [`Event::data`](crate::Event::data) says how often it expired since it was told last. Without a period it stays registered, and
    /// [`EventQueue::set_timer`] sets it again.
    ///
    /// It is never told early. The times of a periodic one do not drift. Clock: that of [`Instant`], which nobody can set.
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
    /// [`EventError::Full`]; [`EventError::Range`] for a period of zero; no descriptors left, for the first timer of a queue.
    pub fn register_timer(
        &self,
        first: impl Into<When>,
        every: Option<Duration>,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let every = check_period(every)?;
        self.0.open_timers()?;
        let id = self.begin_source(flag::TIMER, -1, token, options)?;
        self.0.sources.set_timer(id, first.into().on_clock(), every);
        Ok(id)
    }

    /// Sets a timer anew, from any thread. Expirations that were not told yet are forgotten; if a thread is being given the event at this
    /// moment, it is told with a count of zero. Costs no system call unless the timer becomes the queue's earliest.
    ///
    /// # Errors
    /// [`EventError::Ended`], also for what is no timer; [`EventError::PinnedThreadGone`]; [`EventError::Range`] for a period of zero.
    pub fn set_timer(
        &self,
        id: EventId,
        first: impl Into<When>,
        every: Option<Duration>,
    ) -> Result<(), EventError> {
        let every = check_period(every)?;
        let mut timers = self.timer(id)?;
        timers.agenda.set(id.into(), first.into().on_clock(), every);
        timers.arm();
        Ok(())
    }

    /// Stops a timer, which stays registered. Expirations that were not told yet are forgotten, as [`EventQueue::set_timer`] says.
    ///
    /// # Errors
    /// As [`EventQueue::set_timer`].
    pub fn stop_timer(&self, id: EventId) -> Result<(), EventError> {
        self.timer(id)?.forget(id);
        Ok(())
    }

    /// All timers, with nothing to tell of `id`, which is one and alive while they are locked (S1).
    fn timer(&self, id: EventId) -> Result<std::sync::MutexGuard<'_, Timers>, EventError> {
        let slot = self.reachable(id)?;
        let timers = self.0.sources.timers.lock().unwrap();
        if slot.kind() != flag::TIMER || !slot.state.is_alive(id.generation) {
            return Err(EventError::Ended);
        }
        slot.data.store(0, Relaxed);
        Ok(timers)
    }

    /// The slot of an event that is not the readiness of a program's descriptor.
    pub(super) fn begin_source(
        &self,
        kind: u32,
        fd: i32,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        let new = New {
            token,
            flags: options.flags & !flag::LEVEL | kind,
            wants: if fd < 0 { 0 } else { heddle_sys::epoll::READ },
            fd,
            class: options.class,
            off: options.off,
        };
        self.begin(&new, options.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is armed changes only where a system call was made.
    #[test]
    fn the_timerfd_is_set_only_when_the_earliest_timer_becomes_earlier() {
        let mut timers = Timers::default();
        let mut set = |key, at, armed| {
            timers.agenda.set(key, Ns(at), None);
            timers.arm();
            assert_eq!(timers.armed, Some(Ns(armed)));
        };
        set(1, 500, 500);
        set(2, 700, 500);
        set(1, 900, 500);
        set(3, 400, 400);
        set(3, 800, 400);
        timers.agenda.remove(3);
        timers.arm();
        assert_eq!(timers.armed, Some(Ns(400)), "it comes for nothing once");
        let due = timers.take_due(&Table::new(1));
        assert_eq!(due, [EventId::from(2), EventId::from(1)]);
        assert_eq!(timers.armed, None, "nothing is left");
    }
}
