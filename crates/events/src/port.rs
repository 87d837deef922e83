//! What a thread has in the queue for others to reach: its epoll, its bell, its pinned events, its figures.

use heddle_core::Ns;
use heddle_sys::epoll::Epoll;
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The weight of the past in averages, in per cent (SKQ, section 4.2: alpha is 0.05).
const PAST: u64 = 95;

/// A thread's side of the queue.
#[derive(Debug)]
pub(crate) struct Port {
    pub number: u32,
    pub epoll: Epoll,
    pub pinned: Mutex<VecDeque<u32>>,
    pub pins: AtomicUsize,
    pub figures: Figures,
    /// The thread has left.
    pub gone: AtomicBool,
}

/// What is counted for a thread. Times in nanoseconds.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Figures {
    /// When it was given events last; 0 while it waits for some.
    pub returned_at: AtomicU64,
    /// How many it was given then.
    pub returned: AtomicU64,
    /// Average time per event.
    pub average: AtomicU64,
    pub busy: AtomicU64,
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
        })
    }

    pub fn pin(&self, event: u32) {
        let mut pinned = self.pinned.lock().unwrap();
        pinned.push_back(event);
        self.pins.store(pinned.len(), Relaxed);
    }

    pub fn take_pinned(&self, most: usize, out: &mut Vec<u32>) {
        if self.pins.load(Relaxed) == 0 {
            return;
        }
        let mut pinned = self.pinned.lock().unwrap();
        let some = pinned.len().min(most.saturating_sub(out.len()));
        out.extend(pinned.drain(..some));
        self.pins.store(pinned.len(), Relaxed);
    }
}

/// Adds to a figure that only one thread writes; others read it. Cheaper than an atomic addition.
pub(crate) fn add(figure: &AtomicU64, what: u64) {
    figure.store(figure.load(Relaxed).wrapping_add(what), Relaxed);
}

impl Figures {
    /// The thread comes back at `now`.
    pub fn came_back(&self, now: Ns) {
        let (at, events) = (self.returned_at.load(Relaxed), self.returned.load(Relaxed));
        if at == 0 || events == 0 {
            return;
        }
        let busy = now.0.saturating_sub(at);
        add(&self.busy, busy);
        let (old, new) = (self.average.load(Relaxed), busy / events);
        let average = if old == 0 { new } else { (PAST * old + (100 - PAST) * new) / 100 };
        self.average.store(average, Relaxed);
        self.returned_at.store(0, Relaxed);
    }

    /// The thread gets `events` at `now`.
    pub fn goes(&self, now: Ns, events: usize) {
        self.returned.store(events as u64, Relaxed);
        self.returned_at.store(now.0, Relaxed);
        add(&self.events, events as u64);
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
        figures.goes(Ns(100), 2);
        figures.came_back(Ns(300));
        assert_eq!(figures.average.load(Relaxed), 100);
        figures.goes(Ns(400), 1);
        figures.came_back(Ns(600));
        assert_eq!(figures.average.load(Relaxed), 105);
        assert_eq!(figures.busy.load(Relaxed), 400);
    }

    #[test]
    fn the_wait_of_an_event_counts_those_before_it_and_what_is_left_of_the_turn() {
        let figures = Figures::default();
        figures.average.store(100, Relaxed);
        assert_eq!(figures.expected_wait(Ns(1000), 0), Ns(0));
        assert_eq!(figures.expected_wait(Ns(1000), 3), Ns(300));
        figures.goes(Ns(1000), 2);
        assert_eq!(figures.expected_wait(Ns(1050), 1), Ns(250));
        // It should have been back at 1200: it may be back at any moment, but not in the past.
        assert_eq!(figures.expected_wait(Ns(9000), 1), Ns(100));
    }
}
