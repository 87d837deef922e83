//! What a thread takes from the epolls of others: of those that are busy before it parks, and what its own epoll has hinted at.

use crate::queue::Inner;
use crate::roster::Roster;
use crate::seat::Seat;
use crate::slot::Moment;
use heddle_core::Ns;
use heddle_sys::epoll::Events;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How often at most a thread looks for what another's epoll keeps, at one hint: it is to come back.
const FETCHES: usize = 8;

impl Seat {
    /// Looks at the epolls of threads that are not parked: a descriptor may be registered nowhere else, because nobody idled or few
    /// threads were there when it was. Whether any thread is busy.
    pub fn visit(&mut self, inner: &Inner) -> bool {
        let mut is_any_busy = false;
        for lane in 0..self.roster.lanes() {
            // Not by its figures: who was alone when it was given something has none.
            if lane == self.lane || self.roster.idle.contains(lane) {
                continue;
            }
            is_any_busy = true;
            // A few at a time: what is left here its own thread may want to have.
            let mut events = std::mem::replace(&mut self.buffers[0], Events::with_capacity(0));
            self.looked = Moment::now();
            look_into(inner, &self.roster, lane, &mut events);
            self.harvested(inner, &events, 0);
            self.buffers[0] = events;
        }
        is_any_busy
    }

    /// Fetches the events of which other epolls have hinted: those that keep them may have them still ([`crate::watch`]).
    pub fn follow_hints(&mut self, inner: &Inner) {
        let mut at = 0;
        // What is fetched may hint at others, none of them twice.
        while let Some(&keeper) = self.hints.get(at) {
            at += 1;
            self.fetch(inner, keeper);
        }
        self.hints.clear();
    }

    fn fetch(&mut self, inner: &Inner, keeper: u32) {
        let known =
            Some(Arc::clone(&self.roster)).filter(|roster| roster.lane_of(keeper).is_some());
        let roster = known.unwrap_or_else(|| inner.roster());
        // What is kept by nobody who waits is told without hints ([`crate::orphans`]).
        let Some(lane) = roster.lane_of(keeper) else { return };
        let mut events = std::mem::replace(&mut self.fetched, Events::with_capacity(0));
        for _ in 0..FETCHES {
            self.looked = Moment::now();
            look_into(inner, &roster, lane, &mut events);
            events.iter().for_each(|(key, ready)| self.happened(inner, key.into(), ready));
            if !events.is_full() {
                break;
            }
        }
        self.fetched = events;
    }
}

/// Looks into the epoll of another thread, which must not miss its bell, nor the signals that are sent to it.
fn look_into(inner: &Inner, roster: &Roster, lane: usize, events: &mut Events) {
    let port = &roster.ports[lane];
    port.epoll.wait(events, Some(Ns::ZERO));
    if events.has_bell() {
        port.epoll.ring();
    }
    if inner.sources.has_signals.load(Relaxed) {
        port.visited.store(true, Relaxed);
        roster.wake(lane);
    }
}
