//! What a thread has in the queue for others to reach: its epoll, its bell, its pinned events, its figures.

use crate::spread::WINDOW;
use heddle_core::Ns;
use heddle_core::driver::TurnTime;
use heddle_sys::epoll::Epoll;
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A thread's side of the queue.
#[derive(Debug)]
pub(crate) struct Port {
    pub number: u32,
    pub epoll: Epoll,
    pinned: Mutex<Pinned>,
    pub pins: AtomicUsize,
    /// Of how many descriptors the epoll keeps the edges, those of pinned events left out.
    pub kept: AtomicUsize,
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
    /// The events that it was given last; no turn while it waits for some.
    pub turn: TurnTime,
    /// For how many turns this one stands, where not all are timed.
    weight: AtomicU64,
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
            kept: AtomicUsize::new(0),
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
        self.turn.since().is_some()
    }

    /// The thread comes back at `now`.
    pub fn came_back(&self, now: Ns) {
        self.busy.store(self.busy(now).0, Relaxed);
        self.turn.end(now);
    }

    /// The thread gets `events` at `now`: a turn that is timed, for `weight` of which it stands.
    pub fn goes(&self, now: Ns, events: usize, weight: u64) {
        self.weight.store(weight, Relaxed);
        self.turn.begin(now, events);
    }

    /// For how long the thread has handled events, what it handles now included.
    pub fn busy(&self, now: Ns) -> Ns {
        let since = self.turn.since().filter(|_| self.turn.tasks() > 0);
        let turn = since.map_or(0, |since| now.0.saturating_sub(since.0));
        Ns(self.busy.load(Relaxed) + turn * self.weight.load(Relaxed))
    }

    /// Thousandths of its time for which the thread was parked of late: as it measured itself, unless it has done one thing for longer.
    pub fn idle(&self, now: Ns) -> u32 {
        let is_long = |since: Option<Ns>| since.is_some_and(|since| now - since >= WINDOW);
        let parked = Some(Ns(self.parked_at.load(Relaxed))).filter(|&at| at != Ns::ZERO);
        match (is_long(parked), is_long(self.turn.since())) {
            (true, _) => 1000,
            (_, true) => 0,
            _ => self.idle.load(Relaxed),
        }
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
        assert_eq!(figures.turn.average(), Ns(100));
        figures.goes(Ns(400), 1, 16);
        figures.came_back(Ns(600));
        assert_eq!(figures.turn.average(), Ns(105));
        assert_eq!(figures.busy.load(Relaxed), 200 + 16 * 200);
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
