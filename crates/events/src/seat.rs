//! What a thread has of the queue while it waits, and how it waits.

use crate::EventError;
use crate::harvest::Found;
use crate::port::{Port, add};
use crate::queue::Inner;
use crate::roster::{Roster, View};
use crate::schedule::{At, Entry, Kind, Quota, Stolen};
use crate::slot::{DOUBT, EventId, Moment, Slot, flag};
use crate::spread::{CHANGES, Window};
use crate::state::Taken;
use crate::worker::{Fate, Fired};
use heddle_core::{Enqueue, Ns, Rng};
use heddle_sys::clock;
use heddle_sys::epoll::{Events, Look};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// How many events are taken from the kernel at once: what is harvested can be stolen, what is not cannot.
const HARVEST: usize = 32;
/// The same where events take long: the rest stays where idle peers are told of it, and a lane that is not filled for a long time ahead
/// compares fairly with others when the policy looks at expected waits, which do not know what others have not harvested yet.
const HARVEST_LONG: usize = 8;
/// Events take long where a thread is given fewer than this at once.
const LONG_TURN: usize = 4;
/// The same where events have priorities: epoll is first in, first out, so all that is ready has to be seen.
const HARVEST_ALL: usize = 256;
/// How long what is told at once should take: what a thread was given nobody else can take any more.
const TURN: Ns = Ns::from_us(10);
/// How many events are told at once at most, where nothing is said.
const TURN_EVENTS: usize = 32;
/// Of how many turns one is timed where a thread is alone: only the batch and the frequency need to know then how long events take.
const TIMED: u32 = 16;
/// How long a thread rests at first before it looks at busy threads' epolls again, and at most. In between it doubles.
const PATIENCE: Ns = Ns::from_ms(1);
const PATIENCE_MOST: Ns = Ns::from_ms(64);

/// What a thread needs to wait. The buffers are kept: no wait and no event allocates, but for the list of one `poll` for level-triggered ones.
pub(crate) struct Seat {
    pub port: Arc<Port>,
    pub roster: Arc<Roster>,
    pub lane: usize,
    pub kind: Kind,
    pub most: Option<usize>,
    /// For how many events the program has room in this wait.
    pub bound: usize,
    pub rng: Rng,
    /// What the kernel tells: where events take long, where they do not, and where there are two priorities.
    pub buffers: [Events; 3],
    /// What another thread's epoll had of which this thread's has hinted.
    pub fetched: Events,
    /// The ports whose epolls keep what was hinted at.
    pub hints: Vec<u32>,
    taken: Vec<u32>,
    /// Events on their way into the own lane.
    pub mine: Vec<Entry>,
    pub fired: Vec<Fired>,
    /// Of each of `fired`, in order.
    pub fates: Vec<Cell<Fate>>,
    pub look: Look,
    pub asked: Vec<EventId>,
    /// How many events of the lane were there at the last look into the kernel.
    pub ahead: usize,
    /// How many events may be given past the lane.
    pub room: usize,
    /// The time of a harvest, if anybody has asked.
    pub now: Cell<Ns>,
    /// Of each lane the expected wait at the harvest, as far as somebody has asked.
    pub waits: Vec<Cell<Option<Ns>>>,
    /// Whether the kernel was asked in this wait.
    pub is_harvested: bool,
    /// When it was asked last.
    pub looked: Moment,
    /// When the thread came back, if that was timed.
    came_back: Option<Ns>,
    /// What registrations follow ([`crate::spread::goal`]).
    pub goal: u64,
    pub changes: Cell<u32>,
    window: Window,
    turns: u32,
    /// How long the thread rests while another is busy, before it looks at that one's epoll again.
    patience: Ns,
}

impl Seat {
    pub fn new(port: Arc<Port>, roster: Arc<Roster>, rng: Rng) -> Seat {
        Seat {
            port,
            roster,
            lane: 0,
            kind: Kind::default(),
            most: None,
            bound: usize::MAX,
            rng,
            buffers: [HARVEST_LONG, HARVEST, HARVEST_ALL].map(Events::with_capacity),
            fetched: Events::with_capacity(HARVEST_LONG),
            hints: Vec::new(),
            taken: Vec::new(),
            mine: Vec::new(),
            fired: Vec::new(),
            fates: Vec::new(),
            look: Look::default(),
            asked: Vec::new(),
            ahead: 0,
            room: 0,
            now: Cell::new(Ns::ZERO),
            waits: Vec::new(),
            is_harvested: false,
            looked: Moment::now(),
            came_back: None,
            goal: 0,
            changes: Cell::new(0),
            window: Window::default(),
            turns: 0,
            patience: PATIENCE,
        }
    }

    /// Finds the thread's place in the roster.
    pub fn sit(&mut self, inner: &Inner) -> Result<(), EventError> {
        self.lane = self.roster.lane_of(self.port.number).ok_or(EventError::Closed)?;
        self.kind = self.roster.schedule.kind();
        self.waits.resize(self.roster.lanes(), Cell::new(None));
        self.set_goal(inner);
        Ok(())
    }

    /// Follows the roster, if it has changed.
    pub fn refresh(&mut self, inner: &Inner) -> Result<(), EventError> {
        if inner.epoch.load(Acquire) != self.roster.epoch {
            self.roster = inner.roster();
            self.sit(inner)?;
        }
        Ok(())
    }

    /// Whether there are others, to whom it matters what this thread does when.
    fn has_others(&self) -> bool {
        self.roster.lanes() > 1
    }

    /// What the thread was given is handled: how long it took, and how much it idles.
    pub fn comes_back(&mut self, inner: &Inner) {
        (self.is_harvested, self.came_back) = (false, None);
        if !self.port.figures.is_timed() {
            return;
        }
        let now = clock::now();
        self.came_back = Some(now);
        self.port.figures.came_back(now);
        if !self.has_others() {
            return;
        }
        if let Some(idle) = self.window.end(now) {
            self.port.figures.idle.store(idle, Relaxed);
            self.changes.set(CHANGES);
            inner.spread.judge(now, &self.roster);
            self.set_goal(inner);
        }
    }

    /// The thread is given what it waited for.
    pub fn goes(&mut self, fate: Fate) {
        let n = self.fired.len();
        self.fates.clear();
        self.fates.resize(n, Cell::new(fate));
        self.turns = self.turns.wrapping_add(1);
        self.patience = PATIENCE;
        let figures = &self.port.figures;
        add(&figures.events, n as u64);
        add(&figures.waits, 1);
        if self.roster.lanes() > 1 {
            // Without a system call in between, it is the same moment.
            let now = self.came_back.filter(|_| !self.is_harvested).unwrap_or_else(clock::now);
            figures.goes(now, n, 1);
            self.pass_on(false);
        } else if self.turns.is_multiple_of(TIMED) {
            figures.goes(clock::now(), n, TIMED.into());
        }
    }

    /// Takes what there is without waiting. Whether there was any.
    pub fn gather(&mut self, inner: &Inner) -> bool {
        self.look_for_signals(inner);
        let turn = self.turn(inner);
        let waiting = self.roster.schedule.waiting(self.lane);
        // What waits now came after the last look into the kernel: something there may have come before it.
        let is_later = waiting > 0 && self.ahead == 0;
        if is_later || inner.has_high.load(Relaxed) {
            self.harvest(inner, Some(Ns::ZERO), 0);
        }
        self.take(inner, turn);
        if self.fired.is_empty() && self.has_others() {
            self.harvest(inner, Some(Ns::ZERO), turn.all);
            self.take(inner, turn);
        }
        !self.fired.is_empty()
    }

    /// How many events to give at once.
    fn turn(&self, inner: &Inner) -> Quota {
        let average = self.port.figures.turn.average().0;
        let frequency = inner.frequency.load(Relaxed);
        // What one that is alone is given nobody else could have taken.
        let most = self.most.or((!self.has_others()).then_some(TURN_EVENTS));
        let Quota { all, high } = quota(most, average, frequency, inner.share.load(Relaxed));
        Quota { all: all.min(self.bound), high: high.min(self.bound) }
    }

    /// Parks until something happens. False if that is over: the time, or a signal.
    pub fn rest(&mut self, inner: &Inner, until: Option<Ns>) -> Result<bool, EventError> {
        self.roster.idle.mark(self.lane);
        self.look_for_signals(inner);
        let later = if self.has_others() { self.steal(inner) } else { None };
        let again = self.look_at_the_busy(inner);
        if !self.fired.is_empty() || self.has_news(inner) {
            self.roster.idle.unmark(self.lane);
            // The news may be that the queue is closed. What the thread has by then is told all the same.
            if self.fired.is_empty() {
                inner.check()?;
            }
            return Ok(self.fired.is_empty());
        }
        let left = until.map(time_left);
        let wait = [left, later, again].into_iter().flatten().min();
        add(&self.port.figures.parks, 1);
        let found = self.park(inner, wait);
        self.patience = (self.patience * 2).min(PATIENCE_MOST);
        self.roster.idle.unmark(self.lane);
        // What it was given is told even then.
        if self.fired.is_empty() {
            inner.check()?;
        }
        self.take(inner, self.turn(inner));
        let is_over =
            found == Found::Signal || until.is_some_and(|time| time_left(time) == Ns::ZERO);
        Ok(self.fired.is_empty() && !is_over)
    }

    fn park(&mut self, inner: &Inner, wait: Option<Ns>) -> Found {
        let room = self.turn(inner).all;
        if !self.has_others() {
            return self.harvest(inner, wait, room);
        }
        let begin = clock::now();
        self.port.figures.parked_at.store(begin.0, Relaxed);
        let found = self.harvest(inner, wait, room);
        self.port.figures.parked_at.store(0, Relaxed);
        self.window.parked(Ns(clock::now().0.saturating_sub(begin.0)));
        found
    }

    /// Takes the signals that were sent to this thread, where others have looked at its epoll ([`Port::visited`](crate::port::Port)).
    fn look_for_signals(&self, inner: &Inner) {
        if self.port.visited.load(Relaxed) && self.port.visited.swap(false, SeqCst) {
            inner.pump_signals(self.port.number, &self.rng);
        }
    }

    /// What is at the epolls of busy threads, if this one may take it. When to look there again, if any is busy: what happens to a
    /// descriptor that is registered with a busy thread alone wakes nobody.
    fn look_at_the_busy(&mut self, inner: &Inner) -> Option<Ns> {
        let looks = self.fired.is_empty() && self.kind.is_shared && self.has_others();
        (looks && self.visit(inner)).then_some(self.patience)
    }

    /// Looks into others' lanes, once this thread is known to be idle: who adds something from now on wakes it. When to look again, if
    /// at a time.
    fn steal(&mut self, inner: &Inner) -> Option<Ns> {
        let view = View(&self.roster);
        let at = At { lane: self.lane, host: &view, rng: &self.rng };
        self.taken.clear();
        match self.roster.schedule.steal(&at, &mut self.taken) {
            Stolen::Some(n) => {
                add(&self.port.figures.steals, 1);
                add(&self.port.figures.stolen, n as u64);
                self.give(inner, 1);
                self.pass_on(true);
                None
            }
            Stolen::Later(time) => Some(time),
            Stolen::Nothing => None,
        }
    }

    /// Which of the buffers fits.
    pub fn buffer(&self, inner: &Inner, has_high: bool) -> usize {
        let is_long = self.has_others() && self.turn(inner).all < LONG_TURN;
        if has_high { 2 } else { usize::from(!is_long) }
    }

    fn has_news(&self, inner: &Inner) -> bool {
        inner.epoch.load(Acquire) != self.roster.epoch
            || inner.closed.load(Relaxed)
            || self.port.pins.load(Relaxed) > 0
            || self.roster.schedule.waiting(self.lane) > 0
    }

    /// Takes from the own lane what the thread is to have beside what it was given already.
    fn take(&mut self, inner: &Inner, turn: Quota) {
        let all = turn.all.saturating_sub(self.fired.len());
        if all == 0 {
            return;
        }
        self.taken.clear();
        // Those of normal priority are no part of the share of high ones.
        let normal = self.port.take_pinned(all, &mut self.taken);
        let quota = Quota { all, high: (turn.high + normal).min(all) };
        let view = View(&self.roster);
        let at = At { lane: self.lane, host: &view, rng: &self.rng };
        self.roster.schedule.take(&at, quota, &mut self.taken);
        self.ahead = self.ahead.saturating_sub(self.taken.len());
        self.give(inner, turn.all);
    }

    /// Hands `taken` to the program; what is more than `most` goes into the own lane.
    fn give(&mut self, inner: &Inner, most: usize) {
        for i in 0..self.taken.len() {
            let event = self.taken[i];
            if self.fired.len() < most {
                self.give_one(inner, event);
            } else {
                let high = inner.table.slot(event).has(flag::HIGH);
                self.mine.push(Entry { event, high });
            }
        }
        self.put_mine(inner, Enqueue::Migrated);
    }

    pub fn give_one(&mut self, inner: &Inner, event: u32) {
        let slot = inner.table.slot(event);
        let id = inner.table.id(event);
        if inner.pass_over(id, &self.rng) {
            return;
        }
        let is_doubtful = slot.ready.load(Relaxed) & DOUBT != 0;
        // What is told once is turned off when it is told, and not if it is found to be over.
        let is_once = slot.has(flag::DISPATCH);
        match slot.state.take(id.generation, is_once && !is_doubtful) {
            Taken::Mine => {}
            Taken::Off => return,
            Taken::Free => return inner.table.free(event),
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
            add(&self.port.figures.high, 1);
        }
        self.give_away(id, slot, ready);
    }

    /// Tells the program of an event that this thread has, `ready` and what else was seen.
    pub fn give_away(&mut self, id: EventId, slot: &Slot, ready: u32) {
        let data = if slot.data.load(Relaxed) == 0 { 0 } else { slot.data.swap(0, Relaxed) };
        let seen = if slot.ready.load(Relaxed) == 0 { 0 } else { slot.ready.swap(0, Relaxed) };
        let token = slot.token.load(Relaxed);
        self.fired.push(Fired { id, token, ready: ready | seen, data });
    }
}

/// How much time is left; none if there was none.
fn time_left(until: Ns) -> Ns {
    match until {
        Ns::ZERO => Ns::ZERO,
        until => Ns(until.0.saturating_sub(clock::now().0)),
    }
}

/// How many events a thread is given at once: so many that they take [`TURN`], by their average, or `most` if that is said; so few that it
/// comes back `hertz` times a second; of high priority `share` per cent of that, rounded up (SKQ, section 4.4).
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
    use crate::{EventOptions, EventQueue};
    use std::time::Duration;

    /// The queue is closed while a thread that found nothing of its own steals.
    #[test]
    fn what_was_stolen_as_the_queue_was_closed_is_told() {
        let queue = EventQueue::builder().policy("work-stealing:quantum=none").build().unwrap();
        let mut busy = queue.worker().unwrap();
        busy.set_batch(1);
        for token in 0..4 {
            let id = queue.register_user(token, EventOptions::default()).unwrap();
            queue.trigger(id).unwrap();
        }
        assert_eq!(busy.wait_held(Some(Duration::ZERO)).unwrap().len(), 1);
        let mut thief = queue.worker().unwrap();
        queue.close();
        let inner = Arc::clone(&thief.inner);
        assert!(!thief.seat.rest(&inner, None).unwrap(), "there is something to tell");
        assert!(!thief.seat.fired.is_empty());
        thief.seat.goes(Fate::Unseen);
        // And is told to others when this one leaves.
        drop(thief);
    }

    #[test]
    fn a_turn_is_ten_microseconds_or_what_was_said() {
        assert_eq!(quota(None, 0, 0, 100).all, TURN_EVENTS);
        assert_eq!(quota(None, 1, 0, 100).all, TURN_EVENTS);
        assert_eq!(quota(None, 1_000, 0, 100).all, 10);
        assert_eq!(quota(None, 5_001, 0, 100).all, 1);
        assert_eq!(quota(None, 2_000_000, 0, 100).all, 1);
        assert_eq!(quota(Some(100), 2_000_000, 0, 100).all, 100);
    }

    #[test]
    fn a_frequency_bounds_how_much_is_given_at_once() {
        // 10 kHz: 100 us.
        assert_eq!(quota(Some(64), 10_000, 10_000, 100).all, 10);
        assert_eq!(quota(Some(8), 10_000, 10_000, 100).all, 8);
        assert_eq!(quota(Some(64), 1_000_000, 10_000, 100).all, 1, "at least one");
        assert_eq!(quota(Some(64), 0, 10_000, 100).all, 64, "nothing is known of it yet");
        assert_eq!(quota(Some(64), 10, u32::MAX, 100).all, 1);
    }

    #[test]
    fn the_share_is_rounded_up() {
        let high = |most, share| quota(Some(most), 0, 0, share).high;
        assert_eq!((high(32, 100), high(32, 50), high(32, 1), high(1, 1)), (32, 16, 1, 1));
        assert_eq!(high(10, 25), 3);
    }
}
