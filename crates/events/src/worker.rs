//! A thread that handles events.

use crate::port::{Port, add};
use crate::queue::Inner;
use crate::roster::{Roster, View};
use crate::schedule::{At, Quota, Stolen};
use crate::slot::{EventId, NONE, Slot, flag};
use crate::state::Taken;
use crate::{Batch, EventError, watch};
use heddle_core::{Enqueue, Ns, Rng};
use heddle_sys::clock;
use heddle_sys::epoll::{BROKEN, Events};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

/// How many events are taken from the kernel at once: what is harvested can be stolen, what is not cannot.
const HARVEST: usize = 32;
/// The same where events have priorities: epoll is first in, first out, so all that is ready has to be seen.
const HARVEST_ALL: usize = 256;
/// How long what is told at once should take: what a thread was given nobody else can take any more.
const TURN: Ns = Ns::from_us(10);
/// How many events are told at once at most, where nothing is said.
const TURN_EVENTS: usize = 32;
/// After how many activations of a socket it is asked where its packets are processed.
const ASK_ORIGIN: u32 = 64;

/// An event that a thread was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Its registration.
    pub id: EventId,
    /// What the program calls it.
    pub token: u64,
    /// What the descriptor is ready for, as bits of epoll.
    pub ready: u32,
    /// What a timer, signal or other source counted.
    pub data: u64,
}

/// A thread's place in an [`crate::EventQueue`]. Leaves when it is dropped; what it held is told to others.
pub struct Worker {
    pub(crate) inner: Arc<Inner>,
    port: Arc<Port>,
    roster: Arc<Roster>,
    lane: usize,
    most: Option<usize>,
    rng: Rng,
    events: Events,
    taken: Vec<u32>,
    pub(crate) fired: Vec<Fired>,
    /// How many of `fired` were released by their guards, in order.
    pub(crate) released: std::cell::RefCell<Vec<bool>>,
    polls: Vec<(i32, u32)>,
    ready: Vec<u32>,
    /// It belongs to the thread that made it: its events do.
    _thread: PhantomData<*mut ()>,
}

impl Worker {
    pub(crate) fn join(inner: Arc<Inner>) -> Result<Worker, EventError> {
        let port = inner.open_port()?;
        let info = heddle_sys::topology::cpu_info(heddle_sys::thread::current_cpu());
        let mine = Arc::clone(&port);
        inner.regroup(None, |ports, infos| {
            ports.push(mine);
            infos.push(info);
            Ok(())
        })?;
        let roster = inner.roster();
        let lane = roster.lane_of(port.number).ok_or(EventError::Closed)?;
        Ok(Worker {
            rng: inner.seed(),
            inner,
            port,
            roster,
            lane,
            most: None,
            events: Events::with_capacity(HARVEST_ALL),
            taken: Vec::new(),
            fired: Vec::new(),
            released: Default::default(),
            polls: Vec::new(),
            ready: Vec::new(),
            _thread: PhantomData,
        })
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// How many events [`Worker::wait`] gives at once at most. By default as many as take about 10 us, by their average, and 32 at most:
    /// what a thread was given no other can take.
    pub fn set_batch(&mut self, events: usize) {
        self.most = Some(events.max(1));
    }

    /// Waits for events, for ever without a timeout. What the last wait brought is released. Empty when the time is over or a signal
    /// came.
    ///
    /// # Errors
    /// [`EventError::Closed`], [`EventError::Forked`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Batch<'_>, EventError> {
        self.fill(timeout, true)?;
        Ok(Batch::new(self))
    }

    /// As [`Worker::wait`], for those who do not handle events one by one: all are held until the next wait.
    ///
    /// # Errors
    /// As [`Worker::wait`].
    pub fn wait_held(&mut self, timeout: Option<Duration>) -> Result<&[Fired], EventError> {
        self.fill(timeout, false)?;
        self.released.borrow_mut().clear();
        Ok(&self.fired)
    }

    /// `again`: what was not looked at is told again.
    fn fill(&mut self, timeout: Option<Duration>, again: bool) -> Result<(), EventError> {
        self.inner.check()?;
        self.release_all(again);
        if self.roster.lanes() > 1 {
            self.port.figures.came_back(clock::now());
        }
        let until =
            timeout.map(|time| clock::now() + Ns(time.as_nanos().min(u64::MAX.into()) as u64));
        loop {
            self.refresh()?;
            if self.gather() || !self.rest(until)? {
                break;
            }
        }
        if self.roster.lanes() > 1 {
            self.port.figures.goes(clock::now(), self.fired.len());
        } else {
            add(&self.port.figures.events, self.fired.len() as u64);
        }
        add(&self.port.figures.waits, 1);
        Ok(())
    }

    /// Follows the roster, if it has changed.
    fn refresh(&mut self) -> Result<(), EventError> {
        if self.inner.closed.load(Relaxed) {
            return Err(EventError::Closed);
        }
        if self.inner.epoch.load(Acquire) != self.roster.epoch {
            self.roster = self.inner.roster();
            self.lane = self.roster.lane_of(self.port.number).ok_or(EventError::Closed)?;
        }
        Ok(())
    }

    /// Takes what there is without waiting. Whether there was any.
    fn gather(&mut self) -> bool {
        let most = self.turn();
        if self.inner.has_high.load(Relaxed) {
            self.harvest(Some(Ns::ZERO), HARVEST_ALL);
        }
        self.take(most);
        if self.fired.is_empty() && self.roster.lanes() > 1 {
            self.harvest(Some(Ns::ZERO), HARVEST);
            self.take(most);
        }
        !self.fired.is_empty()
    }

    /// How many events to give at once.
    fn turn(&self) -> Quota {
        let average = self.port.figures.average.load(Relaxed);
        let within = |time: u64| {
            time.checked_div(average).map_or(TURN_EVENTS, |n| (n as usize).clamp(1, TURN_EVENTS))
        };
        let mut all = self.most.unwrap_or_else(|| within(TURN.0));
        match self.inner.frequency.load(Relaxed) {
            0 => {}
            hertz => all = all.min(within(1_000_000_000 / u64::from(hertz))),
        }
        let high = (all * self.inner.share.load(Relaxed) as usize).div_ceil(100);
        Quota { all, high }
    }

    /// Parks until something happens. False if that is over: the time, or a signal.
    fn rest(&mut self, until: Option<Ns>) -> Result<bool, EventError> {
        let (roster, lane) = (Arc::clone(&self.roster), self.lane);
        roster.idle.mark(lane);
        let later = self.last_look();
        if !self.fired.is_empty() || self.has_news() {
            roster.idle.unmark(lane);
            return Ok(self.fired.is_empty());
        }
        let left = until.map(|until| until.0.saturating_sub(clock::now().0));
        let wait = [left, later.map(|time| time.0)].into_iter().flatten().min().map(Ns);
        add(&self.port.figures.parks, 1);
        let found = self.harvest(wait, HARVEST);
        roster.idle.unmark(lane);
        self.inner.check()?;
        self.take(self.turn());
        let is_over =
            left.is_some_and(|left| left == 0 || until.is_some_and(|t| clock::now() >= t));
        Ok(self.fired.is_empty() && (found || !is_over) && !(is_over))
    }

    /// Others' lanes, once this thread is known to be idle: who adds something from now on wakes it. When to look again, if at a time.
    fn last_look(&mut self) -> Option<Ns> {
        self.take(self.turn());
        if !self.fired.is_empty() {
            return None;
        }
        let (view, at_lane) = (View(&self.roster), self.lane);
        let at = At { lane: at_lane, host: &view, rng: &self.rng };
        self.taken.clear();
        let stolen = self.roster.schedule.steal(&at, &mut self.taken);
        match stolen {
            Stolen::Some(n) => {
                add(&self.port.figures.steals, 1);
                add(&self.port.figures.stolen, n as u64);
                self.give(1);
                None
            }
            Stolen::Later(time) => Some(time),
            Stolen::Nothing => None,
        }
    }

    fn has_news(&self) -> bool {
        self.inner.epoch.load(Acquire) != self.roster.epoch
            || self.inner.closed.load(Relaxed)
            || self.port.pins.load(Relaxed) > 0
            || self.roster.schedule.waiting(self.lane) > 0
    }

    /// Takes from the own lane.
    fn take(&mut self, quota: Quota) {
        self.taken.clear();
        self.port.take_pinned(quota.all, &mut self.taken);
        let view = View(&self.roster);
        let at = At { lane: self.lane, host: &view, rng: &self.rng };
        self.roster.schedule.take(&at, quota, &mut self.taken);
        self.give(quota.all);
    }

    /// Hands `taken` to the program; what is more than `most` goes into the own lane.
    fn give(&mut self, most: usize) {
        let taken = std::mem::take(&mut self.taken);
        for &event in &taken {
            if self.fired.len() >= most {
                self.inner.try_put_or_put(
                    &self.roster,
                    event,
                    self.port.number,
                    Enqueue::Migrated,
                    &self.rng,
                );
                continue;
            }
            self.give_one(event);
        }
        self.taken = taken;
    }

    fn give_one(&mut self, event: u32) {
        let slot = self.inner.table.slot(event);
        let id = self.inner.table.id(event);
        if self.inner.pass_over(id, &self.rng) {
            return;
        }
        match slot.state.take(id.generation, slot.has(flag::DISPATCH)) {
            Taken::Mine => {}
            Taken::Off => return,
            Taken::Free => return self.inner.table.free(event),
        }
        let fired = Fired {
            id,
            token: slot.token.load(Relaxed),
            ready: slot.ready.swap(0, Relaxed),
            data: slot.data.swap(0, Relaxed),
        };
        if slot.has(flag::HIGH) {
            add(&self.port.figures.high, 1);
        }
        self.fired.push(fired);
    }

    /// Takes from the kernel what has become ready, and puts it where the policy says. Whether there was anything, a bell included.
    fn harvest(&mut self, timeout: Option<Ns>, _most: usize) -> bool {
        self.port.epoll.wait(&mut self.events, timeout);
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for (key, ready) in events.iter() {
            self.inner.happened(
                &self.roster,
                EventId::from(key),
                ready,
                self.port.number,
                &self.rng,
            );
        }
        let found = !events.is_empty();
        self.events = events;
        let waits = self.roster.schedule.waiting(self.lane);
        if found && waits > 1 && self.roster.schedule.peers() > 0 && !self.roster.idle.is_empty() {
            add(&self.port.figures.rings, u64::from(self.roster.wake_any()));
        }
        found
    }

    /// Lets go of all that the last wait brought.
    fn release_all(&mut self, again: bool) {
        if self.fired.is_empty() {
            return;
        }
        let fired = std::mem::take(&mut self.fired);
        let released = std::mem::take(&mut *self.released.borrow_mut());
        self.polls.clear();
        for (i, one) in fired.iter().enumerate() {
            let was_handled = released.get(i).copied();
            let slot = self.inner.table.slot(one.id.index);
            let is_level = slot.has(flag::LEVEL);
            match was_handled {
                Some(true) => self.polls.push((-1, 0)),
                Some(false) if again => self.release_unseen(one),
                _ if is_level => {}
                _ => self.release(one.id, false),
            }
            let asks = is_level
                && !matches!(was_handled, Some(true))
                && !(matches!(was_handled, Some(false)) && again);
            let fd = if asks { slot.fd.load(Relaxed) } else { -1 };
            if self.polls.len() == i {
                self.polls.push((fd, slot.wants.load(Relaxed)));
            }
        }
        self.release_levels(&fired);
        self.fired = fired;
        self.fired.clear();
    }

    /// Level-triggered ones: told again if they are still ready.
    fn release_levels(&mut self, fired: &[Fired]) {
        if self.polls.iter().all(|&(fd, _)| fd < 0) {
            return;
        }
        watch::ready_now(&self.polls, &mut self.ready);
        for (i, one) in fired.iter().enumerate() {
            if self.polls[i].0 < 0 {
                continue;
            }
            let slot = self.inner.table.slot(one.id.index);
            slot.ready.fetch_or(self.ready[i], Relaxed);
            self.release(one.id, self.ready[i] != 0);
        }
    }

    fn release_unseen(&self, one: &Fired) {
        let slot = self.inner.table.slot(one.id.index);
        slot.ready.fetch_or(one.ready, Relaxed);
        slot.add_data(one.data);
        self.release(one.id, true);
    }

    /// One event is handled.
    pub(crate) fn release(&self, id: EventId, ready: bool) {
        let slot = self.inner.table.slot(id.index);
        if slot.has(flag::ONCE) && !ready {
            self.inner.end(id);
        }
        if self.roster.lanes() > 1 {
            self.inner.follow_roster(&self.roster, id);
        }
        let next = slot.state.release(id.generation, ready);
        self.inner.follow(id.index, next, self.port.number, &self.rng);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.release_all(true);
        self.port.gone.store(true, Relaxed);
        let number = self.port.number;
        // Nobody refuses that one leaves.
        let _ = self.inner.regroup(None, |ports, infos| {
            if let Some(lane) = ports.iter().position(|port| port.number == number) {
                ports.remove(lane);
                infos.remove(lane);
            }
            Ok(())
        });
    }
}

impl Inner {
    /// A descriptor became ready, which the thread of port `near` saw.
    fn happened(&self, roster: &Roster, key: EventId, ready: u32, near: u32, rng: &Rng) {
        let slot = self.table.slot(key.index);
        if slot.state.generation() != key.generation {
            return;
        }
        if slot.has(flag::PUMP | flag::PROCESS) {
            return self.pump(key, near, rng);
        }
        if slot.has(flag::SOCKET) {
            Self::ask_origin(slot);
        }
        let ready = if ready & BROKEN != 0 { ready | slot.wants.load(Relaxed) } else { ready };
        self.one_happened(roster, key, slot, ready, near, rng);
        let second = slot.second.load(Relaxed);
        if second != NONE {
            let other = self.table.slot(second);
            let ready = if ready & BROKEN != 0 { ready | other.wants.load(Relaxed) } else { ready };
            let id = self.table.id(second);
            // Parted before it ended: if it is here still, the generation is that of the one meant.
            if other.first.load(Relaxed) == key.index {
                self.one_happened(roster, id, other, ready, near, rng);
            }
        }
    }

    fn one_happened(
        &self,
        roster: &Roster,
        id: EventId,
        slot: &Slot,
        ready: u32,
        near: u32,
        rng: &Rng,
    ) {
        if ready & (slot.wants.load(Relaxed) | BROKEN) == 0 {
            return;
        }
        slot.ready.fetch_or(ready & (slot.wants.load(Relaxed) | BROKEN), Relaxed);
        if slot.state.activate(id.generation) == crate::state::Next::Enqueue {
            self.try_put_or_put(roster, id.index, near, Enqueue::Wakeup, rng);
        }
    }

    fn try_put_or_put(&self, roster: &Roster, event: u32, near: u32, why: Enqueue, rng: &Rng) {
        if !self.try_put(roster, event, near, why, rng) {
            self.put(event, near, why, rng);
        }
    }

    fn ask_origin(slot: &Slot) {
        let count = slot.count.load(Relaxed);
        slot.count.store(count.wrapping_add(1), Relaxed);
        if count % ASK_ORIGIN == 0 {
            let cpu = heddle_sys::socket::incoming_cpu(slot.fd.load(Relaxed));
            slot.origin.store(cpu.unwrap_or(NONE), Relaxed);
        }
    }
}
