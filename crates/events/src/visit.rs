//! What a worker takes from the epolls of others: those of busy workers before it parks, and what its own
//! epoll hinted at.

use crate::inner::Inner;
use crate::slot::Moment;
use crate::worker_state::WorkerState;
use crate::workers::WorkerSet;
use heddle_core::Ns;
use heddle_sys::epoll::Events;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How often a worker at most looks into the keeper's epoll for one hint: it must return at some point.
const FETCHES: usize = 8;

/// Into how many epolls of busy workers a worker looks at most when it has run out of events.
const VISITS: usize = 8;
/// So many idle workers together look at all busy ones within [`PATIENCE_MOST`]; with more, each sleeps longer.
const VISITORS: usize = 8;
/// How long an idle worker sleeps at most before it looks at busy workers' epolls again.
const PATIENCE_MOST: Ns = Ns::from_ms(64);
/// The most with many idle workers, of which all others may become busy during this one's sleep.
const PATIENCE_OF_MANY: Ns = Ns::from_ms(1_000);

impl WorkerState {
    /// Looks into the epolls of workers that are not parked. A descriptor may be registered nowhere else,
    /// because no worker was idle or few had joined when it was registered. Returns whether any worker is
    /// busy.
    ///
    /// Idle workers share the work: each looks at a few, and at its part of all when it has slept.
    pub fn visit(&mut self, inner: &Inner, has_slept: bool) -> bool {
        let n = self.workers.len();
        // Not by its counters: a worker that was alone when it was given something has none.
        let idle = self.workers.idle.len();
        let part = n.saturating_sub(idle).div_ceil(idle.clamp(1, VISITORS));
        let mut left = if has_slept { VISITS.max(part) } else { VISITS };
        let first = if n > VISITS { self.rng.next_u64() as usize % n } else { self.index };
        let mut is_any_busy = false;
        for index in (first..first + n).map(|index| index % n) {
            if index == self.index || self.workers.idle.contains(index) {
                continue;
            }
            is_any_busy = true;
            if left == 0 {
                break;
            }
            left -= 1;
            // A few at a time: its own worker may want the rest.
            let mut events = std::mem::replace(&mut self.buffers[0], Events::with_capacity(0));
            self.looked_at = Moment::now();
            look_into(inner, &self.workers, index, &mut events);
            self.harvested(inner, &events, 0);
            self.buffers[0] = events;
        }
        is_any_busy
    }

    /// Returns how long to sleep before the next visit, after a sleep of `patience` was in vain.
    pub fn more_patience(&self, patience: Ns) -> Ns {
        let turns = self.workers.idle.len().div_ceil(VISITORS).max(1) as u64;
        Ns(patience.0 * 2).min(Ns(PATIENCE_MOST.0 * turns)).min(PATIENCE_OF_MANY)
    }

    /// Fetches the events at which other epolls have hinted: the keepers may still have them
    /// ([`crate::watch`]).
    pub fn follow_hints(&mut self, inner: &Inner) {
        let mut at = 0;
        // Fetched events may hint at further keepers, none of them twice.
        while let Some(&keeper) = self.hints.get(at) {
            at += 1;
            self.fetch(inner, keeper);
        }
        self.hints.clear();
    }

    fn fetch(&mut self, inner: &Inner, keeper: u32) {
        let known =
            Some(Arc::clone(&self.workers)).filter(|workers| workers.index_of(keeper).is_some());
        let workers = known.unwrap_or_else(|| Arc::clone(&inner.dispatch.workers()));
        // What a departed port keeps is reported without hints ([`crate::departed`]).
        let Some(index) = workers.index_of(keeper) else { return };
        let mut events = std::mem::replace(&mut self.fetched, Events::with_capacity(0));
        for _ in 0..FETCHES {
            self.looked_at = Moment::now();
            look_into(inner, &workers, index, &mut events);
            events.iter().for_each(|(key, ready)| self.on_ready(inner, key.into(), ready));
            if !events.is_full() {
                break;
            }
        }
        self.fetched = events;
    }
}

/// Looks into the epoll of another worker, which must not miss its bell, or signals sent to its thread.
fn look_into(inner: &Inner, workers: &WorkerSet, index: usize, events: &mut Events) {
    let port = &workers.ports[index];
    port.epoll.wait(events, Some(Ns::ZERO));
    if events.has_bell() {
        port.epoll.ring();
    }
    if inner.sources.has_signals.load(Relaxed) {
        port.visited.store(true, Relaxed);
        workers.wake(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_state::PATIENCE;
    use crate::{EventOptions, EventQueue, Interest};
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Each of many busy workers has a descriptor that is registered with it alone.
    #[test]
    fn an_idle_worker_looks_at_a_few_of_many_busy_ones_and_at_all_in_the_end() {
        let queue = EventQueue::builder().policy("fifo").peers(0).build().unwrap();
        let busy: Vec<_> = (0..40).map(|_| queue.worker().unwrap()).collect();
        let mut ends: Vec<_> = (0..busy.len()).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (near, far)) in ends.iter_mut().enumerate() {
            let options = EventOptions::default().edge();
            queue.register(&*near, Interest::READ, token as u64, options).unwrap();
            far.write_all(b"x").unwrap();
        }
        let mut idle = queue.worker().unwrap();
        let inner = Arc::clone(&idle.inner);
        idle.state.refresh(&inner).unwrap();
        idle.state.workers.idle.mark(idle.state.index);
        assert!(idle.state.visit(&inner, false));
        let waiting = idle.state.workers.schedule.waiting(idle.state.index);
        assert_eq!(waiting, VISITS, "a descriptor for each worker");
        // The only idle worker: its part is all of them, and it does not sleep longer than 64 ms.
        assert!(idle.state.visit(&inner, true));
        assert_eq!(idle.state.more_patience(PATIENCE), PATIENCE * 2);
        assert_eq!(idle.state.more_patience(PATIENCE_MOST), PATIENCE_MOST);
        (0..9).for_each(|index| idle.state.workers.idle.mark(index));
        assert_eq!(idle.state.more_patience(PATIENCE_MOST), PATIENCE_MOST * 2);
        for index in (0..9).chain([idle.state.index]) {
            idle.state.workers.idle.unmark(index);
        }
        let mut delivered = 0;
        while delivered < busy.len() {
            let n = idle.wait(Some(Duration::ZERO)).unwrap().count();
            assert_ne!(n, 0, "{delivered} delivered");
            delivered += n;
        }
    }
}
