//! How a worker releases what it was given.
//!
//! Edge-triggered events, and those that their handler has drained, are released when their guard is dropped:
//! another worker may have the next one at once, and no system call is needed. Level-triggered events have to
//! be checked once more, which is done at the worker's next wait (as in SKQ): one `poll` for all of them
//! instead of one each. What happens to such a descriptor meanwhile is reported later by the rest of the
//! batch, which takes 10 us on average at most. If events take long, a batch is a single event, and dropping
//! its guard and the next wait coincide.

use crate::drift::goal;
use crate::ids::{EventId, NONE};
use crate::inner::Inner;
use crate::slot::{Moment, Slot, flag};
use crate::state::Next;
use crate::worker_state::{Fate, Fired, WorkerState};
use heddle_core::Enqueue;
use heddle_sys::clock;
use std::sync::atomic::Ordering::Relaxed;

impl WorkerState {
    /// Releases all events of the last wait.
    pub fn release_all(&mut self, inner: &Inner) {
        if self.fired.is_empty() {
            return;
        }
        // The program has finished with all of them.
        let now = Moment::now();
        self.look.clear();
        self.asked.clear();
        for i in 0..self.fired.len() {
            match self.fates[i].get() {
                Fate::Released => {}
                Fate::Unseen => self.release_unseen(inner, self.fired[i]),
                Fate::Seen => self.release_seen(inner, self.fired[i].id, now),
            }
        }
        if !self.asked.is_empty() {
            self.release_levels(inner);
        }
        self.fired.clear();
        self.put_mine(inner, Enqueue::Wakeup);
    }

    fn release_seen(&mut self, inner: &Inner, id: EventId, now: Moment) {
        let slot = inner.dispatch.table.slot(id.index);
        // The program may have ended it meanwhile.
        if slot.is_checked_on_release() && slot.state.is_alive(id.generation) {
            slot.set_released_at(now);
            // What was reported meanwhile is seen by the check below, or is over.
            slot.state.forget_again(id.generation);
            self.look.ask(slot.fd.load(Relaxed), slot.wants.load(Relaxed));
            self.asked.push(id);
        } else {
            self.let_go(inner, id, false);
        }
    }

    /// Releases level-triggered events; those that are still ready are reported again.
    fn release_levels(&mut self, inner: &Inner) {
        self.look.now();
        for i in 0..self.asked.len() {
            let (id, ready) = (self.asked[i], self.look.ready(i));
            if ready != 0 {
                inner.dispatch.table.slot(id.index).ready.fetch_or(ready, Relaxed);
            }
            self.let_go(inner, id, ready != 0);
        }
    }

    fn release_unseen(&mut self, inner: &Inner, one: Fired) {
        let slot = inner.dispatch.table.slot(one.id.index);
        slot.ready.fetch_or(one.ready, Relaxed);
        if one.data != 0 {
            slot.add_data(one.data);
        }
        self.let_go(inner, one.id, true);
    }

    /// Releases an event that is not reported: what was `seen` of it is over.
    pub fn withhold(&self, inner: &Inner, id: EventId, slot: &Slot, seen: u32) {
        let next = slot.state.release(id.generation, false);
        if next == Next::Enqueue {
            // Something happened to it since the check.
            slot.ready.fetch_or(seen, Relaxed);
            slot.doubt();
        }
        inner.dispatch.follow(id.index, next, self.port.number, &self.rng);
    }

    /// Releases one of several events. One that is reported again goes where the policy says, or into this
    /// worker's run queue with the others.
    fn let_go(&mut self, inner: &Inner, id: EventId, ready: bool) {
        let slot = inner.dispatch.table.slot(id.index);
        match self.finish_event(inner, id, ready) {
            Next::Enqueue => {
                self.room = 0;
                if !ready && slot.is_checked_on_release() {
                    // It was activated since the check, perhaps by something that the check found to be over.
                    slot.doubt();
                }
                self.place_activated(inner, id.index, slot);
            }
            next => inner.dispatch.follow(id.index, next, self.port.number, &self.rng),
        }
    }

    /// Releases one event.
    pub fn release(&self, inner: &Inner, id: EventId) {
        let next = self.finish_event(inner, id, false);
        if next != Next::Nothing {
            inner.dispatch.follow(id.index, next, self.port.number, &self.rng);
        }
    }

    fn finish_event(&self, inner: &Inner, id: EventId, ready: bool) -> Next {
        let slot = inner.dispatch.table.slot(id.index);
        if slot.has(flag::ONCE) && !ready {
            inner.end(id);
        } else if self.kind.has_choice || self.kind.is_shared {
            self.follow(inner, id, slot);
        }
        slot.state.release(id.generation, ready)
    }

    /// Makes the event's registrations follow the worker set and the level of peers, and its home follow the
    /// policy.
    fn follow(&self, inner: &Inner, id: EventId, slot: &Slot) {
        if slot.fd.load(Relaxed) < 0 || slot.has(flag::PINNED | flag::PUMP | flag::ALWAYS) {
            return;
        }
        let (carrier, name) = match slot.first.load(Relaxed) {
            NONE => (slot, id),
            first => (inner.dispatch.table.slot(first), inner.dispatch.table.id(first)),
        };
        let follows = carrier.drift.follows.load(Relaxed);
        if follows != self.goal {
            let is_new_set = follows >> 8 != self.goal >> 8;
            if is_new_set {
                inner.watches.follow_workers(&inner.dispatch, &self.workers, id);
            } else if self.may_change() {
                inner.watches.follow_level(
                    &inner.dispatch,
                    &self.workers,
                    carrier,
                    name,
                    self.goal,
                );
            }
        }
        if slot.drift.is_away() {
            self.move_home(inner, id, slot, carrier);
        } else if carrier.is_kept_elsewhere() && self.may_change() {
            // A descriptor that was closed meanwhile cannot be watched and need not be.
            let _ = inner.watches.relocate(&inner.dispatch, id);
        }
    }

    fn move_home(&self, inner: &Inner, id: EventId, slot: &Slot, carrier: &Slot) {
        if let Some(port) = slot.drift.moves(clock::now()).filter(|_| self.may_change()) {
            slot.home.store(port, Relaxed);
            carrier.home.store(port, Relaxed);
            // A descriptor that was closed meanwhile cannot be watched and need not be.
            let _ = inner.watches.relocate(&inner.dispatch, id);
        }
    }

    /// Takes one of the changes that the worker may make in this window.
    fn may_change(&self) -> bool {
        let left = self.changes.get();
        self.changes.set(left.saturating_sub(1));
        left > 0
    }

    /// Updates what registrations are to follow.
    pub fn update_goal(&mut self, inner: &Inner) {
        self.goal = goal(self.workers.epoch, inner.watches.level(&self.workers));
    }
}
