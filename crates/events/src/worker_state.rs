//! Per-worker state and the wait loop.

use crate::EventError;
use crate::ids::EventId;
use crate::inner::Inner;
use crate::port::Port;
use crate::schedule::{Caller, Entry, Kind, Stolen};
use crate::slot::{IDLE, Moment};
use crate::spread::CHANGES;
use crate::telemetry::Count;
use crate::window::{Stay, Window};
use crate::workers::{View, WorkerSet};
use heddle_core::{Ns, Rng};
use heddle_sys::epoll::{BROKEN, Events, Look, READ, WRITE};
use heddle_sys::{clock, topology};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// How many events are taken from the kernel at once. Harvested events can be stolen; others cannot.
const HARVEST: usize = 32;
/// The same if events take long. The rest stays where idle peers are notified of it, and a run queue that is
/// not filled far ahead compares fairly with others when the policy looks at expected waits, which do not
/// include what others have not harvested yet.
const HARVEST_LONG: usize = 8;
/// Events take long if a worker is given fewer than this at once.
const LONG_TURN: usize = 4;
/// The same if events have priorities: epoll is first in, first out, so all that is ready must be seen.
const HARVEST_ALL: usize = 256;
/// One of this many turns is timed if there is only one worker: then only the batch and the frequency depend
/// on how long events take.
const TIMED: u32 = 16;

/// How long an idle worker sleeps at first before it looks at busy workers' epolls again. The time doubles with each
/// sleep.
pub(crate) const PATIENCE: Ns = Ns::from_ms(1);

/// An event that a worker was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Its registration.
    pub id: EventId,
    /// The token that it was registered with.
    pub token: u64,
    /// What the descriptor is ready for, as bits of epoll.
    pub ready: u32,
    /// What a timer, signal or other source counted.
    pub data: u64,
}

impl Fired {
    /// As [`Event::is_idle`](crate::Event::is_idle).
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ready & (IDLE | READ | WRITE | BROKEN) == IDLE
    }
}

/// What has become of a delivered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The program has not looked at it: it is reported again.
    Unseen,
    /// It is handled and not yet released.
    Seen,
    /// It has been released.
    Released,
}

/// The result of a harvest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HarvestOutcome {
    /// Events.
    Some,
    /// No event: the time is over, or the bell rang.
    Nothing,
    /// No event: a signal came.
    Signal,
}

/// What a worker needs to wait. The buffers are kept: no wait and no event allocates, except the list of one
/// `poll` for level-triggered events.
pub(crate) struct WorkerState {
    pub port: Arc<Port>,
    pub workers: Arc<WorkerSet>,
    pub index: usize,
    pub kind: Kind,
    pub batch_limit: Option<usize>,
    /// For how many events the program has room in this wait.
    pub room_limit: usize,
    pub rng: Rng,
    /// For what the kernel reports: if events take long, if they do not, and if there are two priorities.
    pub buffers: [Events; 3],
    /// For what another worker's epoll has, at which this worker's hinted.
    pub fetched: Events,
    /// The ports whose epolls keep what was hinted at.
    pub hints: Vec<u32>,
    pub taken: Vec<u32>,
    /// Events on their way into this worker's run queue.
    pub mine: Vec<Entry>,
    pub fired: Vec<Fired>,
    /// The fate of each of `fired`, in order.
    pub fates: Vec<Cell<Fate>>,
    pub look: Look,
    pub asked: Vec<EventId>,
    /// How many events of the run queue were there at the last look into the kernel.
    pub ahead: usize,
    /// How many events may bypass the run queue.
    pub room: usize,
    /// The time of a harvest, if it was read.
    pub now: Cell<Ns>,
    /// The expected wait of each run queue at the harvest, if it was read.
    pub waits: Vec<Cell<Option<Ns>>>,
    /// Whether the kernel was asked in this wait.
    pub is_harvested: bool,
    /// When the kernel was last asked.
    pub looked_at: Moment,
    /// When the worker came back, if that was timed.
    returned_at: Option<Ns>,
    /// What registrations follow ([`crate::drift::goal`]).
    pub goal: u64,
    pub changes: Cell<u32>,
    stay: Stay,
    /// Since when the thread waits elsewhere.
    pub polls_since: Option<Ns>,
    pub window: Window,
    turns: u32,
    /// How long this worker sleeps while another is busy, before it looks at that worker's epoll again.
    pub patience: Ns,
}

impl WorkerState {
    pub fn new(port: Arc<Port>, workers: Arc<WorkerSet>, rng: Rng) -> WorkerState {
        let stay = Stay::on(port.cpu.lock().unwrap().os_id);
        WorkerState {
            port,
            workers,
            index: 0,
            kind: Kind::default(),
            batch_limit: None,
            room_limit: usize::MAX,
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
            looked_at: Moment::now(),
            returned_at: None,
            goal: 0,
            changes: Cell::new(0),
            stay,
            polls_since: None,
            window: Window::default(),
            turns: 0,
            patience: PATIENCE,
        }
    }

    /// Finds this worker's index in the worker set.
    pub fn locate(&mut self, inner: &Inner) -> Result<(), EventError> {
        self.index = self.workers.index_of(self.port.number).ok_or(EventError::Closed)?;
        self.kind = self.workers.schedule.kind();
        self.waits.resize(self.workers.len(), Cell::new(None));
        self.update_goal(inner);
        Ok(())
    }

    /// Fetches the worker set if it has changed.
    pub fn refresh(&mut self, inner: &Inner) -> Result<(), EventError> {
        if inner.dispatch.epoch.load(Acquire) != self.workers.epoch {
            self.workers = Arc::clone(&inner.dispatch.workers());
            self.locate(inner)?;
        }
        Ok(())
    }

    /// Whether there are other workers, to whom this worker's timing matters.
    pub fn has_others(&self) -> bool {
        self.workers.len() > 1
    }

    /// The last batch is handled: notes how long it took and how much the worker idles.
    pub fn finish_turn(&mut self, inner: &Inner) {
        (self.is_harvested, self.returned_at) = (false, None);
        if !self.port.figures.is_timed() {
            return;
        }
        let now = clock::now();
        self.returned_at = Some(now);
        self.port.figures.end_turn(now);
        if !self.has_others() {
            return;
        }
        if let Some(idle) = self.window.end(now) {
            self.port.figures.idle.store(idle, Relaxed);
            self.changes.set(CHANGES);
            self.follow_cpu();
            inner.watches.spread.judge(now, &self.workers);
            self.update_goal(inner);
        }
    }

    /// A window is over: if the system has moved the thread to another CPU for good, events follow.
    fn follow_cpu(&mut self) {
        if self.kind.has_choice
            && let Some(cpu) = self.stay.moved(heddle_sys::thread::current_cpu())
        {
            *self.port.cpu.lock().unwrap() = topology::cpu_info(cpu);
            self.workers.follow_cpus();
        }
    }

    /// The worker returns with what it waited for.
    pub fn begin_turn(&mut self, fate: Fate) {
        let n = self.fired.len();
        self.fates.clear();
        self.fates.resize(n, Cell::new(fate));
        self.turns = self.turns.wrapping_add(1);
        if n > 0 {
            self.patience = PATIENCE;
        }
        let figures = &self.port.figures;
        figures.add(Count::Events, n as u64);
        figures.add(Count::Waits, 1);
        if self.workers.len() > 1 {
            // Without a system call in between, it is the same moment.
            let now = self.returned_at.filter(|_| !self.is_harvested).unwrap_or_else(clock::now);
            figures.begin_turn(now, n, 1);
            self.wake_another(false);
        } else if self.turns.is_multiple_of(TIMED) {
            figures.begin_turn(clock::now(), n, TIMED.into());
        }
    }

    /// Takes what there is without waiting. Returns whether there is any.
    pub fn gather(&mut self, inner: &Inner) -> bool {
        self.take_own_signals(inner);
        let turn = self.turn_quota(inner);
        let waiting = self.workers.schedule.waiting(self.index);
        // What waits now came after the last look into the kernel: something there may have come before it.
        let is_later = waiting > 0 && self.ahead == 0;
        if is_later || inner.dispatch.table.has_high() {
            self.harvest(inner, Some(Ns::ZERO), 0);
        }
        self.take(inner, turn);
        if self.fired.is_empty() && self.has_others() {
            self.harvest(inner, Some(Ns::ZERO), turn.all);
            self.take(inner, turn);
        }
        !self.fired.is_empty()
    }

    /// Marks the worker idle and looks for work once more. Returns when to look again, if at a given time; `None` if
    /// there is work, for which it is no longer marked.
    pub fn begin_idle(&mut self, inner: &Inner) -> Result<Option<Option<Ns>>, EventError> {
        self.workers.idle.mark(self.index);
        self.take_own_signals(inner);
        let later = if self.has_others() { self.steal(inner) } else { None };
        let again = self.visit_busy(inner);
        if self.fired.is_empty() && !self.has_work(inner) {
            return Ok(Some(later.into_iter().chain(again).min()));
        }
        self.workers.idle.unmark(self.index);
        // The queue may have been closed. Events that the worker has by then are delivered all the same.
        if self.fired.is_empty() {
            inner.check()?;
        }
        Ok(None)
    }

    /// Parks until something happens. Returns false if the wait is over: because of the time, or of a signal.
    pub fn park(&mut self, inner: &Inner, until: Option<Ns>) -> Result<bool, EventError> {
        let Some(again) = self.begin_idle(inner)? else { return Ok(self.fired.is_empty()) };
        let left = until.map(time_left);
        let wait = left.into_iter().chain(again).min();
        self.port.figures.add(Count::Parks, 1);
        let found = self.park_measured(inner, wait);
        self.patience = self.more_patience(self.patience);
        self.workers.idle.unmark(self.index);
        // Events that it was given are delivered even then.
        if self.fired.is_empty() {
            inner.check()?;
        }
        self.take(inner, self.turn_quota(inner));
        let is_over = found == HarvestOutcome::Signal
            || until.is_some_and(|time| time_left(time) == Ns::ZERO);
        Ok(self.fired.is_empty() && !is_over)
    }

    /// Harvests while parked, and notes how long that took.
    fn park_measured(&mut self, inner: &Inner, wait: Option<Ns>) -> HarvestOutcome {
        let room = self.turn_quota(inner).all;
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

    /// Takes the signals that were sent to this thread, if others have looked into its epoll
    /// ([`Port::visited`](crate::port::Port)).
    fn take_own_signals(&self, inner: &Inner) {
        if self.port.visited.load(Relaxed) && self.port.visited.swap(false, SeqCst) {
            inner.pump_signals(self.port.number, &self.rng);
        }
    }

    /// Takes what busy workers' epolls have, if this worker may. Returns when to look there again if any is
    /// busy: an event of a descriptor that is registered with a busy worker alone wakes no other.
    fn visit_busy(&mut self, inner: &Inner) -> Option<Ns> {
        let looks = self.fired.is_empty() && self.kind.is_shared && self.has_others();
        let has_slept = self.patience > PATIENCE;
        (looks && self.visit(inner, has_slept)).then_some(self.patience)
    }

    /// Looks into the other run queues. This worker is marked idle, so an event that is added from now on
    /// wakes it. Returns when to look again, if at a given time.
    fn steal(&mut self, inner: &Inner) -> Option<Ns> {
        let view = View(&self.workers);
        let caller = Caller { index: self.index, host: &view, rng: &self.rng };
        self.taken.clear();
        match self.workers.schedule.steal(&caller, &mut self.taken) {
            Stolen::Some(n) => {
                self.port.figures.add(Count::Steals, 1);
                self.port.figures.add(Count::Stolen, n as u64);
                self.deliver(inner, 1);
                self.wake_another(true);
                None
            }
            Stolen::Later(time) => Some(time),
            Stolen::Nothing => None,
        }
    }

    /// Returns the index of the buffer to use.
    pub fn buffer(&self, inner: &Inner, has_high: bool) -> usize {
        let is_long = self.has_others() && self.turn_quota(inner).all < LONG_TURN;
        if has_high { 2 } else { usize::from(!is_long) }
    }

    fn has_work(&self, inner: &Inner) -> bool {
        inner.dispatch.epoch.load(Acquire) != self.workers.epoch
            || inner.closed.load(Relaxed)
            || self.port.pins.load(Relaxed) > 0
            || self.workers.schedule.waiting(self.index) > 0
    }
}

/// Returns the time left; zero if there was none.
fn time_left(until: Ns) -> Ns {
    match until {
        Ns::ZERO => Ns::ZERO,
        until => Ns(until.0.saturating_sub(clock::now().0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventOptions, EventQueue};
    use std::time::Duration;

    /// The queue is closed while a worker that found nothing of its own steals.
    #[test]
    fn events_stolen_while_the_queue_closes_are_delivered() {
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
        assert!(!thief.state.park(&inner, None).unwrap(), "there is something to deliver");
        assert!(!thief.state.fired.is_empty());
        thief.state.begin_turn(Fate::Unseen);
        // They are reported to others when this worker leaves.
        drop(thief);
    }

    /// A held event of high priority counts until it is released.
    #[test]
    fn priority_costs_nothing_once_its_last_event_has_ended() {
        let queue = EventQueue::new().unwrap();
        let mut worker = queue.worker().unwrap();
        let inner = Arc::clone(&worker.inner);
        let has_high = || inner.dispatch.table.has_high();
        assert!(!has_high());
        let high = || queue.register_user(0, EventOptions::default().high()).unwrap();
        let (first, second) = (high(), high());
        queue.deregister(first).unwrap();
        queue.trigger(second).unwrap();
        assert_eq!(worker.wait_held(Some(Duration::ZERO)).unwrap().len(), 1);
        queue.deregister(second).unwrap();
        assert!(has_high());
        assert!(worker.wait_held(Some(Duration::ZERO)).unwrap().is_empty());
        assert!(!has_high());
    }
}
