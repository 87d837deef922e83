//! Timers: one timerfd per queue, set to the earliest.

use super::agenda::Agenda;
use crate::EventError;
use crate::error::system;
use crate::ids::EventId;
use crate::slot::{IDLE, Slot, Table, flag};
use heddle_core::Ns;
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
pub enum TimerStart {
    /// After this time from now.
    After(Duration),
    /// At this instant. If it has passed: at once, and with a period as often as the timer would have expired
    /// since.
    At(Instant),
}

impl From<Duration> for TimerStart {
    fn from(time: Duration) -> TimerStart {
        TimerStart::After(time)
    }
}

impl From<Instant> for TimerStart {
    fn from(time: Instant) -> TimerStart {
        TimerStart::At(time)
    }
}

impl TimerStart {
    /// Converts to the queue's clock.
    pub(crate) fn on_clock(self) -> Ns {
        let (instant, ns) = anchor();
        match self {
            TimerStart::After(time) => clock::now() + Ns::from(time),
            TimerStart::At(then) => match then.checked_duration_since(instant) {
                Some(later) => ns + Ns::from(later),
                None => Ns(ns.0.saturating_sub(Ns::from(instant - then).0)),
            },
        }
    }
}

/// Returns one moment on both clocks, which tick alike. It is the same for all timers, so that their order is
/// that of their instants. The queue's clock is read after the other, so the result is never too early, and
/// too late by at most the time of the reading.
fn anchor() -> (Instant, Ns) {
    static ANCHOR: OnceLock<(Instant, Ns)> = OnceLock::new();
    let read = |_| {
        let (before, instant, after) = (clock::now(), Instant::now(), clock::now());
        (after - before, (instant, after))
    };
    // The thread may be interrupted between the readings, but hardly every time.
    *ANCHOR.get_or_init(|| (0..8).map(read).min_by_key(|(took, _)| *took).unwrap().1)
}

/// The timers of a queue.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    agenda: Agenda,
    descriptor: Option<OwnedFd>,
    /// What the timerfd is set to, if it has not expired.
    armed: Option<Ns>,
}

impl Timers {
    /// Opens the timerfd if it is not open; `watch` has the workers watch it.
    pub fn open(
        &mut self,
        watch: impl FnOnce(&OwnedFd) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        if self.descriptor.is_none() {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)
                .map_err(|errno| system("make a timerfd")(errno.into()))?;
            watch(&fd)?;
            self.descriptor = Some(fd);
        }
        Ok(())
    }

    /// Sets the timer of `id` to `at` and then every `every`.
    pub fn schedule(&mut self, id: EventId, at: Ns, every: Option<Ns>) {
        self.agenda.set(id.into(), at, every);
        self.arm();
    }

    /// Sets the timerfd if the earliest timer has become earlier. Removing a timer leaves it as it is: the
    /// pump then comes once for nothing, and timeouts that are set and removed all the time cost no system
    /// calls.
    fn arm(&mut self) {
        let Some(earliest) = self.agenda.earliest() else { return };
        if self.armed.is_none_or(|armed| earliest < armed) {
            self.set(earliest);
            self.armed = Some(earliest);
        }
    }

    /// Sets the timerfd; `Ns::ZERO` disarms it. In both cases it is not ready afterwards.
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

    /// Adds due expirations to their slots' data. Returns the events to be activated (S1, S2).
    pub fn take_due(&mut self, table: &Table) -> Vec<EventId> {
        let (now, mut due) = (clock::now(), Vec::new());
        while let Some((key, times)) = self.agenda.take_due(now) {
            let id = EventId::from(key);
            let slot = table.slot(id.index);
            let is_due = match slot.kind() {
                flag::TIMER => slot.add_data(times),
                _ => self.is_idle(id, slot, now),
            };
            if is_due {
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

    /// Whether an event is reported because its idle limit, which is over, has passed since its last report. If not,
    /// looks again when it may have.
    fn is_idle(&mut self, id: EventId, slot: &Slot, now: Ns) -> bool {
        let Some(limit) = self.agenda.period(id.into()) else { return false };
        if !slot.state.is_alive(id.generation) {
            self.agenda.remove(id.into());
            return false;
        }
        let end = Ns(slot.active.load(Relaxed).saturating_add(limit.0));
        if end > now {
            self.agenda.set(id.into(), end, Some(limit));
            return false;
        }
        // What waits or is handled is not idle.
        let is_idle = slot.state.is_at_rest(id.generation);
        if is_idle {
            slot.ready.fetch_or(IDLE, Relaxed);
        }
        is_idle
    }

    pub fn forget(&mut self, id: EventId) {
        self.agenda.remove(id.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is armed changes only if a system call was made.
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
        assert_eq!(timers.armed, Some(Ns(400)), "one unnecessary expiration");
        let table = Table::new(1);
        for index in [1, 2] {
            table.slot(index).flags.store(flag::TIMER, Relaxed);
        }
        let due = timers.take_due(&table);
        assert_eq!(due, [EventId::from(2), EventId::from(1)]);
        assert_eq!(timers.armed, None, "nothing is left");
    }
}
