//! What a thread was given is let go of.
//!
//! Edge-triggered events, and those whose handler said that it has drained them, are released when their guard is dropped: another thread
//! may have the next one at once, and no system call is needed. Level-triggered ones have to be looked at once more, and wait for the
//! thread's next wait (as SKQ's do): one `poll` for all of them instead of one for each. What happens to such a descriptor meanwhile is
//! told late by the rest of the batch, which takes 10 us on average at most; where events take long a batch is a single one, and its
//! guard and the next wait are the same moment.

use crate::queue::Inner;
use crate::seat::Seat;
use crate::slot::{EventId, Moment, NONE, Slot, flag};
use crate::spread;
use crate::state::Next;
use crate::worker::{Fate, Fired};
use heddle_core::Enqueue;
use heddle_sys::clock;
use std::sync::atomic::Ordering::Relaxed;

impl Seat {
    /// Lets go of all that the last wait brought.
    pub fn release_all(&mut self, inner: &Inner) {
        if self.fired.is_empty() {
            return;
        }
        // The program has done with all of them.
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
        let slot = inner.table.slot(id.index);
        if slot.is_looked_at() {
            slot.let_go_at(now);
            // What was told meanwhile is what the look below sees, or is over.
            slot.state.forget_again(id.generation);
            self.look.ask(slot.fd.load(Relaxed), slot.wants.load(Relaxed));
            self.asked.push(id);
        } else {
            self.let_go(inner, id, false);
        }
    }

    /// Level-triggered ones: told again if they are still ready.
    fn release_levels(&mut self, inner: &Inner) {
        self.look.now();
        for i in 0..self.asked.len() {
            let (id, ready) = (self.asked[i], self.look.ready(i));
            if ready != 0 {
                inner.table.slot(id.index).ready.fetch_or(ready, Relaxed);
            }
            self.let_go(inner, id, ready != 0);
        }
    }

    fn release_unseen(&mut self, inner: &Inner, one: Fired) {
        let slot = inner.table.slot(one.id.index);
        slot.ready.fetch_or(one.ready, Relaxed);
        if one.data != 0 {
            slot.add_data(one.data);
        }
        self.let_go(inner, one.id, true);
    }

    /// Lets go of an event that nobody is told of: what was `seen` of it is over.
    pub fn withhold(&self, inner: &Inner, id: EventId, slot: &Slot, seen: u32) {
        let next = slot.state.release(id.generation, false);
        if next == Next::Enqueue {
            // Something happened to it since it was looked at.
            slot.ready.fetch_or(seen, Relaxed);
            slot.doubt();
        }
        inner.follow(id.index, next, self.port.number, &self.rng);
    }

    /// One of several events is handled: what is told again goes where the policy says, or with others into the own lane.
    fn let_go(&mut self, inner: &Inner, id: EventId, ready: bool) {
        let slot = inner.table.slot(id.index);
        match self.end_turn(inner, id, ready) {
            Next::Enqueue => {
                self.room = 0;
                if !ready && slot.is_looked_at() {
                    // It was told since the look, maybe of what that had seen to be over.
                    slot.doubt();
                }
                self.choose(inner, id.index, slot);
            }
            next => inner.follow(id.index, next, self.port.number, &self.rng),
        }
    }

    /// One event is handled.
    pub fn release(&self, inner: &Inner, id: EventId) {
        let next = self.end_turn(inner, id, false);
        if next != Next::Nothing {
            inner.follow(id.index, next, self.port.number, &self.rng);
        }
    }

    fn end_turn(&self, inner: &Inner, id: EventId, ready: bool) -> Next {
        let slot = inner.table.slot(id.index);
        if slot.has(flag::ONCE) && !ready {
            inner.end(id);
        } else if self.kind.has_choice || self.kind.is_shared {
            self.follow(inner, id, slot);
        }
        slot.state.release(id.generation, ready)
    }

    /// The event's registrations follow the roster and the level, its home the policy.
    fn follow(&self, inner: &Inner, id: EventId, slot: &Slot) {
        if slot.fd.load(Relaxed) < 0 || slot.has(flag::PINNED | flag::PUMP | flag::ALWAYS) {
            return;
        }
        let (carrier, name) = match slot.first.load(Relaxed) {
            NONE => (slot, id),
            first => (inner.table.slot(first), inner.table.id(first)),
        };
        let follows = carrier.drift.follows.load(Relaxed);
        if follows != self.goal {
            let is_new_roster = follows >> 8 != self.goal >> 8;
            if is_new_roster {
                inner.follow_roster(&self.roster, id);
            } else if self.may_change() {
                inner.follow_level(&self.roster, carrier, name, self.goal);
            }
        }
        if slot.drift.is_away() {
            self.move_home(inner, id, slot, carrier);
        } else if carrier.is_kept_elsewhere() && self.may_change() {
            // A descriptor that was closed meanwhile cannot be watched, and need not be.
            let _ = inner.relocate(id);
        }
    }

    fn move_home(&self, inner: &Inner, id: EventId, slot: &Slot, carrier: &Slot) {
        if let Some(port) = slot.drift.moves(clock::now()).filter(|_| self.may_change()) {
            slot.home.store(port, Relaxed);
            carrier.home.store(port, Relaxed);
            // A descriptor that was closed meanwhile cannot be watched, and need not be.
            let _ = inner.relocate(id);
        }
    }

    /// Takes one of the changes that the thread may make in this window.
    fn may_change(&self) -> bool {
        let left = self.changes.get();
        self.changes.set(left.saturating_sub(1));
        left > 0
    }

    /// What registrations shall follow from now on.
    pub fn set_goal(&mut self, inner: &Inner) {
        self.goal = spread::goal(self.roster.epoch, inner.level(&self.roster));
    }
}
