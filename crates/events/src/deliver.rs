//! How a worker takes events from its run queue and delivers them to the program.

use crate::ids::EventId;
use crate::inner::Inner;
use crate::schedule::{Caller, Entry, Quota};
use crate::slot::{DOUBT, Slot, flag};
use crate::state::TakeOutcome;
use crate::telemetry::Count;
use crate::worker_state::{Fired, WorkerState};
use crate::workers::View;
use heddle_core::{Enqueue, Ns};
use heddle_sys::clock;
use std::sync::atomic::Ordering::Relaxed;

/// How long a batch should take: other workers cannot take what this one was given.
const TURN: Ns = Ns::from_us(10);
/// The default limit of a batch, in events.
const TURN_EVENTS: usize = 32;

impl WorkerState {
    /// Returns how many events to deliver at once.
    pub fn turn_quota(&self, inner: &Inner) -> Quota {
        let average = self.port.figures.turn.average().0;
        let frequency = inner.priority.frequency.load(Relaxed);
        // With a single worker, no other could have taken what it is given.
        let most = self.batch_limit.or((!self.has_others()).then_some(TURN_EVENTS));
        let Quota { all, high } =
            quota(most, average, frequency, inner.priority.share.load(Relaxed));
        Quota { all: all.min(self.room_limit), high: high.min(self.room_limit) }
    }

    /// Takes from this worker's run queue what it should get in addition to what it was given already.
    pub fn take(&mut self, inner: &Inner, turn: Quota) {
        let all = turn.all.saturating_sub(self.fired.len());
        if all == 0 {
            return;
        }
        self.taken.clear();
        // Events of normal priority do not count towards the share of high priority.
        let normal = self.port.take_pinned(all, &mut self.taken);
        let quota = Quota { all, high: (turn.high + normal).min(all) };
        let view = View(&self.workers);
        let caller = Caller { index: self.index, host: &view, rng: &self.rng };
        self.workers.schedule.take(&caller, quota, &mut self.taken);
        self.ahead = self.ahead.saturating_sub(self.taken.len());
        self.deliver(inner, turn.all);
    }

    /// Delivers `taken` to the program; what exceeds `most` enters this worker's run queue.
    pub fn deliver(&mut self, inner: &Inner, most: usize) {
        for i in 0..self.taken.len() {
            let event = self.taken[i];
            if self.fired.len() < most {
                self.deliver_one(inner, event);
            } else {
                let high = inner.dispatch.table.slot(event).has(flag::HIGH);
                self.mine.push(Entry { event, high });
            }
        }
        self.put_mine(inner, Enqueue::Migrated);
    }

    pub fn deliver_one(&mut self, inner: &Inner, event: u32) {
        let slot = inner.dispatch.table.slot(event);
        let id = inner.dispatch.table.id(event);
        if inner.dispatch.pass_over(id, &self.rng) {
            return;
        }
        let is_doubtful = slot.ready.load(Relaxed) & DOUBT != 0;
        // A dispatch event is turned off when it is delivered, but not if it turns out to be over.
        let is_once = slot.has(flag::DISPATCH);
        match slot.state.take(id.generation, is_once && !is_doubtful) {
            TakeOutcome::Mine => {}
            TakeOutcome::Off => return,
            TakeOutcome::Free => return inner.dispatch.table.free(event),
        }
        let mut ready = 0;
        if is_doubtful {
            let seen = slot.ready.swap(0, Relaxed);
            ready = slot.ready_now();
            if ready == 0 {
                return self.withhold(inner, id, slot, seen);
            }
            if is_once {
                slot.state.turn_off(id.generation);
            }
        }
        if slot.has(flag::HIGH) {
            self.port.figures.add(Count::High, 1);
        }
        self.push_fired(id, slot, ready);
    }

    /// Adds an event that this thread holds to the batch, with `ready` and what else was seen.
    pub fn push_fired(&mut self, id: EventId, slot: &Slot, ready: u32) {
        let data = if slot.data.load(Relaxed) == 0 { 0 } else { slot.data.swap(0, Relaxed) };
        let seen = if slot.ready.load(Relaxed) == 0 { 0 } else { slot.ready.swap(0, Relaxed) };
        let token = slot.token.load(Relaxed);
        if slot.has(flag::IDLE_LIMIT) {
            slot.active.store(clock::now().0, Relaxed);
        }
        self.fired.push(Fired { id, token, ready: ready | seen, data });
    }
}

/// Returns how many events a worker is given at once: as many as take [`TURN`] on average, or `most` if that
/// is set; few enough that it comes back `hertz` times a second; `share` per cent of that, rounded up, of
/// high priority (SKQ, section 4.4).
fn quota(most: Option<usize>, average: u64, hertz: u32, share: u32) -> Quota {
    let within = |time: u64, most: usize| {
        time.checked_div(average)
            .map_or(most, |n| usize::try_from(n).unwrap_or(most).clamp(1, most))
    };
    let mut all = most.unwrap_or_else(|| within(TURN.0, TURN_EVENTS));
    if hertz > 0 {
        all = within(1_000_000_000 / u64::from(hertz), all);
    }
    Quota { all, high: (all * share as usize).div_ceil(100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_ten_microseconds_or_has_the_size_that_was_set() {
        assert_eq!(quota(None, 0, 0, 100).all, TURN_EVENTS);
        assert_eq!(quota(None, 1, 0, 100).all, TURN_EVENTS);
        assert_eq!(quota(None, 1_000, 0, 100).all, 10);
        assert_eq!(quota(None, 5_001, 0, 100).all, 1);
        assert_eq!(quota(None, 2_000_000, 0, 100).all, 1);
        assert_eq!(quota(Some(100), 2_000_000, 0, 100).all, 100);
    }

    #[test]
    fn a_frequency_bounds_the_batch() {
        // 10 kHz: 100 us.
        assert_eq!(quota(Some(64), 10_000, 10_000, 100).all, 10);
        assert_eq!(quota(Some(8), 10_000, 10_000, 100).all, 8);
        assert_eq!(quota(Some(64), 1_000_000, 10_000, 100).all, 1, "at least one");
        assert_eq!(quota(Some(64), 0, 10_000, 100).all, 64, "the duration is unknown");
        assert_eq!(quota(Some(64), 10, u32::MAX, 100).all, 1);
    }

    #[test]
    fn the_share_is_rounded_up() {
        let high = |most, share| quota(Some(most), 0, 0, share).high;
        assert_eq!((high(32, 100), high(32, 50), high(32, 1), high(1, 1)), (32, 16, 1, 1));
        assert_eq!(high(10, 25), 3);
    }
}
