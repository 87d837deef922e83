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

impl WorkerState {
    /// Looks into the epolls of workers that are not parked. A descriptor may be registered nowhere else,
    /// because no worker was idle or few had joined when it was registered. Returns whether any worker is
    /// busy.
    pub fn visit(&mut self, inner: &Inner) -> bool {
        let mut is_any_busy = false;
        for index in 0..self.workers.len() {
            // Not by its counters: a worker that was alone when it was given something has none.
            if index == self.index || self.workers.idle.contains(index) {
                continue;
            }
            is_any_busy = true;
            // A few at a time: its own worker may want the rest.
            let mut events = std::mem::replace(&mut self.buffers[0], Events::with_capacity(0));
            self.looked_at = Moment::now();
            look_into(inner, &self.workers, index, &mut events);
            self.harvested(inner, &events, 0);
            self.buffers[0] = events;
        }
        is_any_busy
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
        let workers = known.unwrap_or_else(|| inner.dispatch.workers());
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
