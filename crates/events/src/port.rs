//! What a thread has in the queue for others to reach: its epoll, its bell, its pinned events, its figures.

use crate::spread::WINDOW;
use heddle_core::Ns;
use heddle_sys::epoll::Epoll;
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The weight of the past in averages, in per cent (SKQ, section 4.2: alpha is 0.05).
const PAST: u64 = 95;

/// A thread's side of the queue.
#[derive(Debug)]
pub(crate) struct Port {
    pub number: u32,
    pub epoll: Epoll,
    pinned: Mutex<Pinned>,
    pub pins: AtomicUsize,
    pub figures: Figures,
    /// The thread has left.
    pub gone: AtomicBool,
    /// Another thread has looked at the epoll since: a signal sent to this thread was nothing to it, so the kernel has dropped it there.
    pub visited: AtomicBool,
}

/// Pinned events that happened.
#[derive(Debug, Default)]
struct Pinned {
    high: VecDeque<u32>,
    normal: VecDeque<u32>,
}

/// What is counted for a thread. Times in nanoseconds.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Figures {
    /// When it was given events last; 0 while it waits for some.
    pub returned_at: AtomicU64,
    /// How many it was given then.
    pub returned: AtomicU64,
    /// For how many turns this one stands, where not all are timed.
    weight: AtomicU64,
    /// Average time per event.
    pub average: AtomicU64,
    pub busy: AtomicU64,
    /// Since when the thread is parked; 0 if it is not, or alone.
    pub parked_at: AtomicU64,
    /// Thousandths of its last window ([`crate::spread`]) for which it was parked.
    pub idle: AtomicU32,
    pub events: AtomicU64,
    pub waits: AtomicU64,
    pub parks: AtomicU64,
    pub steals: AtomicU64,
    pub stolen: AtomicU64,
    pub high: AtomicU64,
    pub forwarded: AtomicU64,
    pub rings: AtomicU64,
}

impl Port {
    pub fn new(number: u32) -> io::Result<Port> {
        Ok(Port {
            number,
            epoll: Epoll::new()?,
            pinned: Mutex::default(),
            pins: AtomicUsize::new(0),
            figures: Figures::default(),
            gone: AtomicBool::new(false),
            visited: AtomicBool::new(false),
        })
    }

    /// A pinned event happened. False if the thread has left.
    pub fn pin(&self, event: u32, high: bool) -> bool {
        let mut pinned = self.pinned.lock().unwrap();
        if self.gone.load(Relaxed) {
            return false;
        }
        let list = if high { &mut pinned.high } else { &mut pinned.normal };
        list.push_back(event);
        self.pins.fetch_add(1, Relaxed);
        true
    }

    /// The thread leaves: what is pinned to it and was not told.
    pub fn leave(&self) -> Vec<u32> {
        let mut pinned = self.pinned.lock().unwrap();
        self.gone.store(true, Relaxed);
        let Pinned { high, normal } = std::mem::take(&mut *pinned);
        high.into_iter().chain(normal).collect()
    }

    /// Takes pinned events, high priority first. How many of them are of normal priority.
    pub fn take_pinned(&self, most: usize, out: &mut Vec<u32>) -> usize {
        if self.pins.load(Relaxed) == 0 {
            return 0;
        }
        let mut pinned = self.pinned.lock().unwrap();
        let high = pinned.high.len().min(most);
        let normal = pinned.normal.len().min(most - high);
        out.extend(pinned.high.drain(..high));
        out.extend(pinned.normal.drain(..normal));
        self.pins.fetch_sub(high + normal, Relaxed);
        normal
    }
}

/// Adds to a figure that only one thread writes; others read it. Cheaper than an atomic addition.
pub(crate) fn add(figure: &AtomicU64, what: u64) {
    figure.store(figure.load(Relaxed).wrapping_add(what), Relaxed);
}

impl Figures {
    /// Whether what the thread was given last is timed.
    pub fn is_timed(&self) -> bool {
        self.returned_at.load(Relaxed) != 0
    }

    /// The thread comes back at `now`.
    pub fn came_back(&self, now: Ns) {
        let (at, events) = (self.returned_at.load(Relaxed), self.returned.load(Relaxed));
        self.returned_at.store(0, Relaxed);
        if at == 0 || events == 0 {
            return;
        }
        let busy = now.0.saturating_sub(at);
        add(&self.busy, busy * self.weight.load(Relaxed));
        let (old, new) = (self.average.load(Relaxed), busy / events);
        let average = if old == 0 { new } else { (PAST * old + (100 - PAST) * new) / 100 };
        self.average.store(average, Relaxed);
    }

    /// The thread gets `events` at `now`: a turn that is timed, for `weight` of which it stands.
    pub fn goes(&self, now: Ns, events: usize, weight: u64) {
        self.returned.store(events as u64, Relaxed);
        self.weight.store(weight, Relaxed);
        self.returned_at.store(now.0, Relaxed);
    }

    /// For how long the thread has handled events, what it handles now included.
    pub fn busy(&self, now: Ns) -> Ns {
        let since = self.returned_at.load(Relaxed);
        let is_busy = since != 0 && self.returned.load(Relaxed) > 0;
        let turn = if is_busy { now.0.saturating_sub(since) } else { 0 };
        Ns(self.busy.load(Relaxed) + turn * self.weight.load(Relaxed))
    }

    /// Thousandths of its time for which the thread was parked of late: as it measured itself, unless it has done one thing for longer.
    pub fn idle(&self, now: Ns) -> u32 {
        let is_long = |since: &AtomicU64| {
            let since = since.load(Relaxed);
            since != 0 && now.0.saturating_sub(since) >= WINDOW.0
        };
        match (is_long(&self.parked_at), is_long(&self.returned_at)) {
            (true, _) => 1000,
            (_, true) => 0,
            _ => self.idle.load(Relaxed),
        }
    }

    /// How long an event would wait from `now` on behind `waiting` others: SKQ, section 4.2, with its correction for threads that stall.
    pub fn expected_wait(&self, now: Ns, waiting: usize) -> Ns {
        let (at, average) = (self.returned_at.load(Relaxed), self.average.load(Relaxed));
        let returned = if at == 0 { 0 } else { self.returned.load(Relaxed) };
        let since = if at == 0 { now.0 } else { at.max(now.0.saturating_sub(average * returned)) };
        Ns((since + average * (returned + waiting as u64)).saturating_sub(now.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_forgets_slowly() {
        let figures = Figures::default();
        figures.goes(Ns(100), 2, 1);
        figures.came_back(Ns(300));
        assert_eq!(figures.average.load(Relaxed), 100);
        figures.goes(Ns(400), 1, 16);
        figures.came_back(Ns(600));
        assert_eq!(figures.average.load(Relaxed), 105);
        assert_eq!(figures.busy.load(Relaxed), 200 + 16 * 200);
    }

    #[test]
    fn the_wait_of_an_event_counts_those_before_it_and_what_is_left_of_the_turn() {
        let figures = Figures::default();
        figures.average.store(100, Relaxed);
        assert_eq!(figures.expected_wait(Ns(1000), 0), Ns(0));
        assert_eq!(figures.expected_wait(Ns(1000), 3), Ns(300));
        figures.goes(Ns(1000), 2, 1);
        assert_eq!(figures.expected_wait(Ns(1050), 1), Ns(250));
        // It should have been back at 1200: it may be back at any moment, but not in the past.
        assert_eq!(figures.expected_wait(Ns(9000), 1), Ns(100));
    }

    #[test]
    fn a_thread_that_has_long_done_one_thing_is_known_by_it() {
        let (figures, now) = (Figures::default(), Ns(WINDOW.0 * 9));
        figures.idle.store(300, Relaxed);
        assert_eq!(figures.idle(now), 300);
        figures.goes(Ns(now.0 - WINDOW.0), 1, 1);
        assert_eq!(figures.idle(now), 0);
        figures.came_back(now);
        figures.parked_at.store(now.0 - WINDOW.0 + 1, Relaxed);
        assert_eq!(figures.idle(now), 300);
        assert_eq!(figures.idle(Ns(now.0 + 1)), 1000);
    }

    #[test]
    fn pinned_events_come_by_priority() {
        let port = Port::new(0).unwrap();
        port.pin(1, false);
        port.pin(2, true);
        port.pin(3, false);
        let mut out = Vec::new();
        assert_eq!(port.take_pinned(2, &mut out), 1);
        assert_eq!(out, [2, 1]);
        assert_eq!((port.take_pinned(2, &mut out), port.take_pinned(2, &mut out)), (1, 0));
        assert_eq!(out, [2, 1, 3]);
    }

    #[test]
    fn a_thread_that_has_left_takes_nothing_more() {
        let port = Port::new(0).unwrap();
        assert!(port.pin(1, false) && port.pin(2, true));
        assert_eq!(port.leave(), [2, 1]);
        assert!(!port.pin(3, true));
        assert_eq!(port.leave(), []);
    }
}
