//! What happens to a service at known times.

use heddle_core::Ns;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// This worker's delay is over: it begins its request.
    Begin(u32),
    /// The wait of this worker's request is over.
    Continue(u32),
    /// The wait of a request of an event loop is over.
    Resume { worker: u32, request: u32 },
    /// This other thread's sleep is over.
    Background(u32),
    /// This request arrives, a think time after the one before it.
    Arrival(u32),
}

/// Timers in order of time, then of setting.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Ns, u64, Timer)>>,
    set: u64,
}

impl Timers {
    pub fn set(&mut self, at: Ns, timer: Timer) {
        self.set += 1;
        self.heap.push(Reverse((at, self.set, timer)));
    }

    /// Returns when the next one is due; [`Ns::MAX`] for never.
    pub fn next(&self) -> Ns {
        self.heap.peek().map_or(Ns::MAX, |Reverse((at, _, _))| *at)
    }

    pub fn pop(&mut self) -> Option<Timer> {
        self.heap.pop().map(|Reverse((_, _, timer))| timer)
    }
}
