//! The queue that all threads share.

use crate::claims::Claims;
use crate::descriptors::Descriptors;
use crate::error::system;
use crate::orphans::Orphans;
use crate::port::Port;
use crate::roster::{Roster, View};
use crate::schedule::{self, At, Entry};
use crate::slot::{NONE, Table, flag};
use crate::sources::Sources;
use crate::spread::Spread;
use crate::state::Next;
use crate::{EventError, Worker};
use heddle_core::{CpuId, CpuSet, Enqueue, Rng};
use heddle_sys::epoll::Epoll;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The policy where none is chosen: SKQ's recommendation for imbalanced and IO-heavy work (section 4.3).
pub const DEFAULT_POLICY: &str = "hybrid";
/// How many events a queue has room for where nothing is said.
pub const DEFAULT_CAPACITY: usize = 65_536;
/// The most events that a queue may be built for.
const MOST: usize = 1 << 24;

/// One event queue for all threads of a program; a handle, cheap to clone.
///
/// A thread that handles events becomes a [`Worker`] of it. What is registered is told to one worker at a time, by the policy.
#[derive(Clone)]
pub struct EventQueue(pub(crate) Arc<Inner>);

/// What a queue is made of.
#[derive(Clone, Debug)]
pub struct EventQueueBuilder {
    policy: String,
    capacity: usize,
    peers: Option<usize>,
    share: u32,
    frequency: u32,
}

pub(crate) struct Inner {
    pub table: Table,
    pub descriptors: Descriptors,
    pub claims: Claims,
    pub sources: Sources,
    pub spread: Spread,
    pub orphans: Orphans,
    roster: Mutex<Arc<Roster>>,
    /// Names the roster; threads that know an older one look again.
    pub epoch: AtomicU64,
    policy: Mutex<String>,
    ports: AtomicU32,
    pub closed: AtomicBool,
    /// Where descriptors are registered while nobody is a worker.
    pub lobby: OnceLock<Epoll>,
    /// How many pinned events happened for which there was no thread any more.
    pub untold: AtomicU64,
    /// [`heddle_sys::fork::generation`] where it was made.
    process: u32,
    /// How many others than home, at most, an event's descriptor is registered with; None: as the policy says.
    pub peers: Option<usize>,
    /// Whether any event is of high priority: then all that is ready is looked at before anything is told.
    pub has_high: AtomicBool,
    /// The part of what is told at once that may be of high priority, in per cent (SKQ's rtshare).
    pub share: AtomicU32,
    /// How often a thread shall look for events, in a second; 0: no rule (SKQ's rtfreq).
    pub frequency: AtomicU32,
    seed: AtomicU64,
}

impl Default for EventQueueBuilder {
    fn default() -> Self {
        EventQueueBuilder {
            policy: DEFAULT_POLICY.into(),
            capacity: DEFAULT_CAPACITY,
            peers: None,
            share: 100,
            frequency: 0,
        }
    }
}

impl EventQueueBuilder {
    /// Chooses the policy: `name` or `name:key=value,...`.
    #[must_use]
    pub fn policy(mut self, text: &str) -> Self {
        self.policy = text.into();
        self
    }

    /// For how many events there is room: 1 to 2^24, 65,536 by default. About 200 bytes each.
    #[must_use]
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// With how many threads beside its home a descriptor is registered, so that the kernel gives the event to one that is idle. By
    /// default the policy says, and it is none while nobody is idle.
    #[must_use]
    pub fn peers(mut self, threads: usize) -> Self {
        self.peers = Some(threads);
        self
    }

    /// How much of what a thread gets at once may be of high priority: 1 to 100 per cent, 100 by default (SKQ's rtshare).
    #[must_use]
    pub fn high_share(mut self, percent: u32) -> Self {
        self.share = percent;
        self
    }

    /// How often in a second a thread shall come back to look for events of high priority: fewer are given to it at once where they take
    /// long (SKQ's rtfreq). 0, the default: no rule.
    #[must_use]
    pub fn high_frequency(mut self, hertz: u32) -> Self {
        self.frequency = hertz;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// A wrong policy or parameter, one that preempts, a number out of its range.
    pub fn build(self) -> Result<EventQueue, EventError> {
        if !(1..=MOST).contains(&self.capacity) {
            return Err(EventError::Range {
                what: "the capacity",
                given: self.capacity as u64,
                allowed: "1 to 16,777,216",
            });
        }
        check_share(self.share)?;
        let table = Table::new(self.capacity);
        let schedule = make(&self.policy, table.capacity(), 0)?;
        let roster = Roster::new(0, Vec::new(), Vec::new(), schedule);
        let inner = Inner {
            table,
            descriptors: Descriptors::default(),
            claims: Claims::default(),
            sources: Sources::default(),
            spread: Spread::default(),
            orphans: Orphans::default(),
            roster: Mutex::new(Arc::new(roster)),
            epoch: AtomicU64::new(0),
            policy: Mutex::new(self.policy),
            ports: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            lobby: OnceLock::new(),
            untold: AtomicU64::new(0),
            process: heddle_sys::fork::generation(),
            peers: self.peers,
            has_high: AtomicBool::new(false),
            share: AtomicU32::new(self.share),
            frequency: AtomicU32::new(self.frequency),
            seed: AtomicU64::new(0),
        };
        Ok(EventQueue(Arc::new(inner)))
    }
}

fn make(
    text: &str,
    capacity: usize,
    lanes: usize,
) -> Result<Box<dyn schedule::Schedule>, EventError> {
    schedule::make(text, capacity, lanes)?.map_err(EventError::Lacks)
}

fn check_share(percent: u32) -> Result<(), EventError> {
    match percent {
        1..=100 => Ok(()),
        // With none, a thread that has only such events would come back for ever without one.
        given => Err(EventError::Range {
            what: "the share of high priority",
            given: given.into(),
            allowed: "1 to 100 per cent",
        }),
    }
}

impl EventQueue {
    /// A queue of the default policy.
    ///
    /// # Errors
    /// None with the defaults as they are.
    pub fn new() -> Result<EventQueue, EventError> {
        EventQueue::builder().build()
    }

    /// A queue to be described.
    #[must_use]
    pub fn builder() -> EventQueueBuilder {
        EventQueueBuilder::default()
    }

    /// Makes the calling thread a worker of the queue, until what is returned is dropped. A thread may serve several queues.
    ///
    /// # Errors
    /// [`EventError::Crowded`], [`EventError::Closed`], [`EventError::Forked`]; no descriptors left.
    pub fn worker(&self) -> Result<Worker, EventError> {
        self.0.check()?;
        Worker::join(Arc::clone(&self.0))
    }

    /// Changes the policy while threads wait and handle; no event is lost. What the old policy knew of events is forgotten if it is
    /// another one.
    ///
    /// # Errors
    /// As [`EventQueueBuilder::build`]; nothing has changed then.
    pub fn set_policy(&self, text: &str) -> Result<(), EventError> {
        self.0.check()?;
        self.0.regroup(Some(text), |_, _| Ok(()))
    }

    /// The policy, as it was chosen.
    #[must_use]
    pub fn policy(&self) -> String {
        self.0.policy.lock().unwrap().clone()
    }

    /// As [`EventQueueBuilder::high_share`], while running.
    ///
    /// # Errors
    /// [`EventError::Range`].
    pub fn set_high_share(&self, percent: u32) -> Result<(), EventError> {
        check_share(percent)?;
        self.0.share.store(percent, Ordering::Relaxed);
        Ok(())
    }

    /// As [`EventQueueBuilder::high_frequency`], while running.
    pub fn set_high_frequency(&self, hertz: u32) {
        self.0.frequency.store(hertz, Ordering::Relaxed);
    }

    /// How many events are registered. Linear in the most that ever were at a time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.len()
    }

    /// How many events happened that were pinned to a thread that has left, and so were told to nobody.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.0.untold.load(Ordering::Relaxed)
    }

    /// Whether none is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many threads are workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.roster().lanes()
    }

    /// Ends the queue: threads that wait come back with [`EventError::Closed`], and all who ask from now on get that too. Descriptors
    /// stay open.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        // The bells of a forked child are its parent's.
        if !self.0.is_foreign() {
            self.0.ring_all();
        }
    }
}

impl Inner {
    /// Whether the queue may be used.
    pub fn check(&self) -> Result<(), EventError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(EventError::Closed);
        }
        self.check_process()
    }

    /// Whether the queue is that of the process from which this one was forked. The child has the parent's very epolls, in which it would
    /// end the parent's registrations, and locks that the parent's other threads may have held.
    pub fn is_foreign(&self) -> bool {
        self.process != heddle_sys::fork::generation()
    }

    pub fn check_process(&self) -> Result<(), EventError> {
        if self.is_foreign() { Err(EventError::Forked) } else { Ok(()) }
    }

    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.lock().unwrap())
    }

    pub fn ring_all(&self) {
        self.roster().ports.iter().for_each(|port| port.epoll.ring());
    }

    pub fn seed(&self) -> Rng {
        Rng::new(self.seed.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a port for the calling thread.
    pub fn open_port(&self) -> Result<Arc<Port>, EventError> {
        let number = self.ports.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Port::new(number).map_err(system("make an epoll instance"))?))
    }

    /// A new roster: other threads, where `change` says so, or another policy. Events that wait in lanes move to the new ones.
    pub fn regroup(
        &self,
        policy: Option<&str>,
        change: impl FnOnce(
            &mut Vec<Arc<Port>>,
            &mut Vec<heddle_core::CpuInfo>,
        ) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        let mut current = self.roster.lock().unwrap();
        let (mut ports, mut infos) = (current.ports.to_vec(), current.infos.to_vec());
        change(&mut ports, &mut infos)?;
        if ports.len() > CpuSet::CAPACITY {
            return Err(EventError::Crowded(CpuSet::CAPACITY));
        }
        let schedule = match policy {
            None => current.schedule.regroup(ports.len()),
            Some(text) => {
                let schedule = make(text, self.table.capacity(), ports.len())?;
                *self.policy.lock().unwrap() = text.to_owned();
                schedule
            }
        };
        let old = Arc::clone(&current);
        *current = Arc::new(Roster::new(old.epoch + 1, ports, infos, schedule));
        let new = Arc::clone(&current);
        self.epoch.store(new.epoch, Ordering::Release);
        if policy.is_some() {
            self.begin_all(&new);
        }
        drop(current);
        self.move_over(&old, &new);
        // Whoever is parked is known as idle to the old roster only.
        old.ports.iter().for_each(|port| port.epoll.ring());
        Ok(())
    }

    /// Tells a policy that has just come of all events.
    fn begin_all(&self, roster: &Roster) {
        let (view, rng) = (View(roster), self.seed());
        let at = At { lane: 0, host: &view, rng: &rng };
        for id in self.table.ids() {
            roster.schedule.begin(&at, id.index, self.table.slot(id.index).class());
        }
    }

    fn move_over(&self, old: &Roster, new: &Arc<Roster>) {
        let (view, rng) = (View(old), self.seed());
        let at = At { lane: 0, host: &view, rng: &rng };
        for Entry { event, .. } in old.schedule.close(&at) {
            self.put(event, NONE, Enqueue::Migrated, &rng);
        }
        self.settle(new);
    }

    /// Puts an event that is marked queued into the lane that the policy chooses. `near` is the port of the thread that calls, if it is a
    /// worker. The lane's port, if it is another's.
    pub fn put(&self, event: u32, near: u32, why: Enqueue, rng: &Rng) {
        loop {
            let roster = self.roster();
            if self.try_put(&roster, event, near, why, rng) {
                return;
            }
        }
    }

    /// False if the roster is an old one.
    pub fn try_put(&self, roster: &Roster, event: u32, near: u32, why: Enqueue, rng: &Rng) -> bool {
        let slot = self.table.slot(event);
        let home = slot.home.load(Ordering::Relaxed);
        if slot.has(flag::PINNED) {
            self.put_pinned(roster, event, home);
            return true;
        }
        let view = View(roster);
        // Timers, signals and the program's own events have no home: they go round, as homes do.
        let any = || event as usize % roster.lanes().max(1);
        let lane_of_home = roster.lane_of(home).unwrap_or_else(any);
        let lane = roster.lane_near(slot.origin.load(Ordering::Relaxed));
        let at = At {
            lane: lane.or_else(|| roster.lane_of(near)).unwrap_or(lane_of_home),
            host: &view,
            rng,
        };
        let lane = match roster.lanes() {
            0 | 1 => 0,
            _ => roster.schedule.place(&at, event, CpuId(lane_of_home as u16)),
        };
        let entry = Entry { event, high: slot.has(flag::HIGH) };
        if roster.schedule.enqueue(&at, lane, &[entry], why).is_err() {
            return false;
        }
        if roster.ports.get(lane).is_some_and(|port| port.number != near) {
            roster.call(lane);
        }
        true
    }

    fn put_pinned(&self, roster: &Roster, event: u32, port: u32) {
        let high = self.table.slot(event).has(flag::HIGH);
        let Some(lane) = roster.lane_of(port).filter(|&lane| roster.ports[lane].pin(event, high))
        else {
            return self.let_go(event);
        };
        let is_woken = roster.wake(lane);
        // Of a new roster's idle threads this one knows nothing.
        if !is_woken && self.epoch.load(Ordering::Relaxed) != roster.epoch {
            roster.ports[lane].epoll.ring();
        }
    }

    /// The thread of `port` leaves, and with it those that others would have to be told of it.
    pub fn leave(&self, port: &Arc<Port>) {
        self.leave_behind(port);
        // Leaving cannot fail.
        let _ = self.regroup(None, |ports, infos| {
            if let Some(lane) = ports.iter().position(|other| other.number == port.number) {
                ports.remove(lane);
                infos.remove(lane);
            }
            Ok(())
        });
        self.adopt(port);
        port.leave().into_iter().for_each(|event| self.let_go(event));
    }

    /// A pinned event that is marked queued has no thread any more: nobody may have it.
    fn let_go(&self, event: u32) {
        self.untold.fetch_add(1, Ordering::Relaxed);
        let slot = self.table.slot(event);
        let generation = slot.state.generation();
        slot.state.turn_off(generation);
        if slot.state.take(generation, false) == crate::state::Taken::Free {
            self.table.free(event);
        }
    }

    /// What follows from a change of an event's state.
    pub fn follow(&self, event: u32, next: Next, near: u32, rng: &Rng) {
        match next {
            Next::Nothing => {}
            Next::Enqueue => self.put(event, near, Enqueue::Wakeup, rng),
            Next::Free => self.table.free(event),
        }
    }
}
