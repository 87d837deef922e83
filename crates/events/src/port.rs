//! What other threads reach of a worker: its epoll, bell, pinned events and counters.

use crate::telemetry::{Count, WorkerCounts};
use crate::window::WINDOW;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuInfo, Ns};
use heddle_sys::epoll::Epoll;
use heddle_sys::{thread, topology};
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The shared side of a worker.
#[derive(Debug)]
pub(crate) struct Port {
    pub number: u32,
    pub epoll: Epoll,
    pinned: Mutex<Pinned>,
    pub pins: AtomicUsize,
    /// How many descriptors have their edges kept in this epoll, except those of pinned events.
    pub kept_edges: AtomicUsize,
    pub figures: Figures,
    /// Where the thread runs. A leaf lock.
    pub cpu: Mutex<CpuInfo>,
    /// The thread has left.
    pub gone: AtomicBool,
    /// Another thread has looked at this epoll since. It saw nothing of a signal sent to this thread, but its
    /// look made the kernel drop the report.
    pub visited: AtomicBool,
}

/// Pinned events that happened.
#[derive(Debug, Default)]
struct Pinned {
    high: VecDeque<u32>,
    normal: VecDeque<u32>,
}

/// A worker's counters, and its turns. Times are in nanoseconds.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
#[repr(align(128))]
pub(crate) struct Figures {
    /// The events that the worker was given last; no turn while it waits.
    pub turn: TurnTime,
    /// How many turns this one stands for if not all are timed.
    weight: AtomicU64,
    /// When the worker parked; 0 if it is not parked, or is the only worker.
    pub parked_at: AtomicU64,
    /// How long it was parked in its last window ([`crate::window`]), in thousandths.
    pub idle: AtomicU32,
    pub counts: WorkerCounts,
}

impl Port {
    /// Makes the port of the calling thread.
    pub fn new(number: u32, counts: WorkerCounts) -> io::Result<Port> {
        Ok(Port {
            number,
            epoll: Epoll::new()?,
            pinned: Mutex::default(),
            pins: AtomicUsize::new(0),
            kept_edges: AtomicUsize::new(0),
            figures: Figures::new(counts),
            cpu: Mutex::new(topology::cpu_info(thread::current_cpu())),
            gone: AtomicBool::new(false),
            visited: AtomicBool::new(false),
        })
    }

    /// Queues a pinned event that happened. Returns false if the thread has left.
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

    /// Marks the thread as gone and returns the pinned events that were not delivered.
    pub fn leave(&self) -> Vec<u32> {
        let mut pinned = self.pinned.lock().unwrap();
        self.gone.store(true, Relaxed);
        let Pinned { high, normal } = std::mem::take(&mut *pinned);
        high.into_iter().chain(normal).collect()
    }

    /// Takes pinned events, high priority first. Returns how many of them are of normal priority.
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

impl Figures {
    fn new(counts: WorkerCounts) -> Figures {
        Figures {
            turn: TurnTime::default(),
            weight: AtomicU64::new(0),
            parked_at: AtomicU64::new(0),
            idle: AtomicU32::new(0),
            counts,
        }
    }

    /// Adds to a counter. For the worker's thread.
    #[inline]
    pub fn add(&self, what: Count, n: u64) {
        self.counts.add(what, n);
    }

    /// Whether the current turn is timed.
    pub fn is_timed(&self) -> bool {
        self.turn.since().is_some()
    }

    /// Ends the turn: the worker came back at `now`.
    pub fn end_turn(&self, now: Ns) {
        self.add(Count::Busy, self.turn_so_far(now).0);
        self.turn.end(now);
    }

    /// Begins a timed turn: the worker gets `events` at `now`. The turn stands for `weight` of them.
    pub fn begin_turn(&self, now: Ns, events: usize, weight: u64) {
        self.weight.store(weight, Relaxed);
        self.turn.begin(now, events);
    }

    /// Returns how long the worker has handled events, including the current ones.
    pub fn busy(&self, now: Ns) -> Ns {
        self.counts.busy() + self.turn_so_far(now)
    }

    /// Returns how long the current turn, and those that it stands for, have taken.
    fn turn_so_far(&self, now: Ns) -> Ns {
        let since = self.turn.since().filter(|_| self.turn.tasks() > 0);
        let turn = since.map_or(0, |since| now.0.saturating_sub(since.0));
        Ns(turn * self.weight.load(Relaxed))
    }

    /// Returns what part of its time the worker was recently parked, in thousandths: its own measure, unless
    /// it has been doing one thing for longer than a window.
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
    fn the_average_decays() {
        let figures = Figures::default();
        figures.begin_turn(Ns(100), 2, 1);
        figures.end_turn(Ns(300));
        assert_eq!(figures.turn.average(), Ns(100));
        figures.begin_turn(Ns(400), 1, 16);
        figures.end_turn(Ns(600));
        assert_eq!(figures.turn.average(), Ns(105));
        assert_eq!(figures.busy(Ns(900)), Ns(200 + 16 * 200));
    }

    #[test]
    fn a_worker_that_has_long_done_one_thing_counts_as_that() {
        let (figures, now) = (Figures::default(), Ns(WINDOW.0 * 9));
        figures.idle.store(300, Relaxed);
        assert_eq!(figures.idle(now), 300);
        figures.begin_turn(Ns(now.0 - WINDOW.0), 1, 1);
        assert_eq!(figures.idle(now), 0);
        figures.end_turn(now);
        figures.parked_at.store(now.0 - WINDOW.0 + 1, Relaxed);
        assert_eq!(figures.idle(now), 300);
        assert_eq!(figures.idle(Ns(now.0 + 1)), 1000);
    }

    #[test]
    fn pinned_events_come_by_priority() {
        let port = Port::new(0, WorkerCounts::default()).unwrap();
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
    fn a_departed_port_accepts_no_events() {
        let port = Port::new(0, WorkerCounts::default()).unwrap();
        assert!(port.pin(1, false) && port.pin(2, true));
        assert_eq!(port.leave(), [2, 1]);
        assert!(!port.pin(3, true));
        assert_eq!(port.leave(), []);
    }
}
