//! From activated events to run queues: the table of events, the current workers, the policy.

use crate::EventError;
use crate::error::system;
use crate::ids::{EventId, NONE};
use crate::port::Port;
use crate::schedule::{self, Caller, Entry, Schedule};
use crate::slot::{NewEvent, Slot, Table, flag};
use crate::state::{Next, TakeOutcome};
use crate::telemetry::Telemetry;
use crate::workers::{View, WorkerSet};
use arc_swap::{ArcSwap, Guard};
use heddle_core::{CpuId, CpuSet, Enqueue, Rng};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

/// Which events exist, which threads handle them, and which run queue an activated event enters.
pub(crate) struct Dispatcher {
    pub table: Table,
    workers: ArcSwap<WorkerSet>,
    /// Held while the worker set is replaced.
    regrouping: Mutex<()>,
    /// Number of the current worker set. A thread that holds an older set fetches the new one.
    pub epoch: AtomicU64,
    policy: Mutex<String>,
    ports: AtomicU32,
    /// What is counted. Lost are pinned events that happened after their thread had left.
    pub telemetry: Telemetry,
    seed: AtomicU64,
}

/// The worker set before and after a change.
pub(crate) struct Regrouped {
    pub old: Arc<WorkerSet>,
    pub new: Arc<WorkerSet>,
}

impl Dispatcher {
    /// Makes a queue without workers, whose counters other processes see if `seen`.
    pub fn new(capacity: usize, policy: String, seen: bool) -> Result<Dispatcher, EventError> {
        let table = Table::new(capacity);
        let schedule = make(&policy, table.capacity(), 0)?;
        let workers = WorkerSet::new(0, Vec::new(), schedule);
        let telemetry = Telemetry::new(&policy, seen);
        Ok(Dispatcher {
            table,
            workers: ArcSwap::from_pointee(workers),
            regrouping: Mutex::new(()),
            epoch: AtomicU64::new(0),
            policy: Mutex::new(policy),
            ports: AtomicU32::new(0),
            telemetry: telemetry.map_err(system("reserve memory for counters"))?,
            seed: AtomicU64::new(0),
        })
    }

    /// Returns the current workers, for a short time and without a write that all threads would share.
    pub fn workers(&self) -> Guard<Arc<WorkerSet>> {
        self.workers.load()
    }

    /// Returns the policy's text, as it was chosen.
    pub fn policy(&self) -> String {
        self.policy.lock().unwrap().clone()
    }

    pub fn seed(&self) -> Rng {
        Rng::new(self.seed.fetch_add(1, Relaxed))
    }

    /// Makes a port for the calling thread.
    pub fn open_port(&self) -> Result<Arc<Port>, EventError> {
        let number = self.ports.fetch_add(1, Relaxed);
        let counts = self.telemetry.worker().map_err(system("reserve memory for counters"))?;
        Ok(Arc::new(Port::new(number, counts).map_err(system("make an epoll instance"))?))
    }

    /// Allocates a slot for `new` and introduces the event to the policy. `port` is its home, or [`NONE`].
    pub fn begin(&self, new: &NewEvent, port: u32) -> Result<EventId, EventError> {
        if new.flags & flag::PINNED != 0 && self.workers().index_of(port).is_none() {
            return Err(EventError::PinnedThreadGone);
        }
        let id = self.table.begin(new)?;
        self.table.slot(id.index).home.store(port, Relaxed);
        let workers = self.workers();
        let (view, rng) = (View(&workers), self.seed());
        let caller = Caller { index: 0, host: &view, rng: &rng };
        workers.schedule.begin(&caller, id.index, new.class);
        Ok(id)
    }

    /// Returns the slot of a registration that has not ended and whose thread, if it is pinned, has not left.
    pub fn reachable(&self, id: EventId) -> Result<&Slot, EventError> {
        let slot = self.table.alive(id)?;
        let is_lost =
            slot.has(flag::PINNED) && self.workers().index_of(slot.home.load(Relaxed)).is_none();
        if is_lost { Err(EventError::PinnedThreadGone) } else { Ok(slot) }
    }

    /// Replaces the worker set: `change` edits the workers, `policy` replaces the policy. Queued events move
    /// to the new run queues.
    pub fn regroup(
        &self,
        policy: Option<&str>,
        change: impl FnOnce(&mut Vec<Arc<Port>>),
    ) -> Result<Regrouped, EventError> {
        let regrouping = self.regrouping.lock().unwrap();
        let old = self.workers.load_full();
        let mut ports = old.ports.to_vec();
        change(&mut ports);
        if ports.len() > CpuSet::CAPACITY {
            return Err(EventError::Crowded(CpuSet::CAPACITY));
        }
        let schedule = match policy {
            None => old.schedule.regroup(ports.len()),
            Some(text) => {
                let schedule = make(text, self.table.capacity(), ports.len())?;
                *self.policy.lock().unwrap() = text.to_owned();
                self.telemetry.set_policy(text);
                schedule
            }
        };
        let new = Arc::new(WorkerSet::new(old.epoch + 1, ports, schedule));
        self.workers.store(Arc::clone(&new));
        self.epoch.store(new.epoch, Ordering::Release);
        self.telemetry.set_workers(new.len());
        if policy.is_some() {
            self.init_all(&new);
        }
        drop(regrouping);
        self.migrate(&old);
        Ok(Regrouped { old, new })
    }

    /// Introduces all events to a new policy.
    fn init_all(&self, workers: &WorkerSet) {
        let (view, rng) = (View(workers), self.seed());
        let caller = Caller { index: 0, host: &view, rng: &rng };
        for id in self.table.ids() {
            workers.schedule.begin(&caller, id.index, self.table.slot(id.index).class());
        }
    }

    /// Closes the run queues of `old` and moves their events to the current ones.
    fn migrate(&self, old: &WorkerSet) {
        let (view, rng) = (View(old), self.seed());
        let caller = Caller { index: 0, host: &view, rng: &rng };
        for Entry { event, .. } in old.schedule.close(&caller) {
            self.put(event, NONE, Enqueue::Migrated, &rng);
        }
    }

    /// Puts an event that is marked queued into the run queue that the policy chooses, and wakes a worker for
    /// it. `near` is the calling thread's port if it is a worker, or [`NONE`].
    pub fn put(&self, event: u32, near: u32, why: Enqueue, rng: &Rng) {
        loop {
            let workers = self.workers();
            if self.try_put(&workers, event, near, why, rng) {
                return;
            }
        }
    }

    /// As [`Dispatcher::put`]. Returns false if `workers` is no longer current.
    fn try_put(&self, workers: &WorkerSet, event: u32, near: u32, why: Enqueue, rng: &Rng) -> bool {
        let slot = self.table.slot(event);
        let home = slot.home.load(Relaxed);
        if slot.has(flag::PINNED) {
            self.put_pinned(workers, event, home);
            return true;
        }
        let view = View(workers);
        // Timers, signals and user events have no home: they are spread by index, as homes are.
        let any = || event as usize % workers.len().max(1);
        let home_index = workers.index_of(home).unwrap_or_else(any);
        let mine = workers.index_of(near);
        let index = workers.nearest_to(slot.origin.load(Relaxed), mine);
        let caller = Caller { index: index.or(mine).unwrap_or(home_index), host: &view, rng };
        let index = match workers.len() {
            0 | 1 => 0,
            _ => workers.schedule.place(&caller, event, CpuId(home_index as u16)),
        };
        let entry = Entry { event, high: slot.has(flag::HIGH) };
        if workers.schedule.enqueue(&caller, index, &[entry], why).is_err() {
            return false;
        }
        if workers.ports.get(index).is_some_and(|port| port.number != near) {
            workers.notify(index);
        }
        true
    }

    fn put_pinned(&self, workers: &WorkerSet, event: u32, port: u32) {
        let high = self.table.slot(event).has(flag::HIGH);
        let accepts = |&index: &usize| workers.ports[index].pin(event, high);
        let Some(index) = workers.index_of(port).filter(accepts) else {
            return self.drop_pinned(event);
        };
        let is_woken = workers.wake(index);
        // An old set does not know which workers of the new one are idle.
        if !is_woken && self.epoch.load(Relaxed) != workers.epoch {
            workers.ports[index].epoll.ring();
        }
    }

    /// Drops a pinned event that is marked queued: its thread has left, and no other may have it.
    pub fn drop_pinned(&self, event: u32) {
        self.telemetry.lose();
        let slot = self.table.slot(event);
        let generation = slot.state.generation();
        slot.state.turn_off(generation);
        if slot.state.take(generation, false) == TakeOutcome::Free {
            self.table.free(event);
        }
    }

    /// Does what a change of an event's state asks for.
    pub fn follow(&self, event: u32, next: Next, near: u32, rng: &Rng) {
        match next {
            Next::Nothing => {}
            Next::Enqueue => self.put(event, near, Enqueue::Wakeup, rng),
            Next::Free => self.table.free(event),
        }
    }

    /// Drops an event that was taken out of a run queue if its source has nothing left to report. Returns
    /// whether it has.
    pub fn pass_over(&self, id: EventId, rng: &Rng) -> bool {
        let slot = self.table.slot(id.index);
        if !slot.has(flag::COUNTED) || slot.data.load(Relaxed) != 0 {
            return false;
        }
        let next = slot.state.pass_over(id.generation);
        self.follow(id.index, next, NONE, rng);
        // An activation between the check and the end of the event's time in the queue still found it queued
        // and did not write to the state. At least one of that look at the state and this look at the data
        // sees the other's change: both come after a fence.
        fence(SeqCst);
        if next == Next::Nothing && slot.data.load(Relaxed) != 0 {
            self.activate_all(&[id], NONE, rng);
        }
        true
    }

    /// Activates the event: its descriptor is `ready`, or the program triggered it.
    pub fn activate(&self, id: EventId, ready: u32) {
        let slot = self.table.slot(id.index);
        slot.ready.fetch_or(ready, Relaxed);
        let next = slot.state.activate(id.generation);
        self.follow(id.index, next, NONE, &self.seed());
    }

    /// Activates events whose data has changed.
    pub fn activate_all(&self, ids: &[EventId], near: u32, rng: &Rng) {
        for id in ids {
            let next = self.table.slot(id.index).state.activate(id.generation);
            self.follow(id.index, next, near, rng);
        }
    }
}

fn make(text: &str, capacity: usize, queues: usize) -> Result<Box<dyn Schedule>, EventError> {
    schedule::make(text, capacity, queues)?.map_err(EventError::Lacks)
}
