//! From the kernel to run queues: what became ready, and where the policy puts it.
//!
//! What a worker harvests for itself enters its run queue under one lock. If the queue is first in, first
//! out, empty, and there is only one priority, an event that the worker would take out again at once is
//! delivered directly instead: nothing can observe the difference, because no other thread saw the event in
//! the queue.

use crate::ids::{EventId, NONE, WatchKey};
use crate::inner::Inner;
use crate::schedule::{Caller, Entry};
use crate::slot::{Moment, Slot, flag};
use crate::state::Next;
use crate::telemetry::Count;
use crate::worker_state::{HarvestOutcome, WorkerState};
use crate::workers::WorkerSet;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, Enqueue, Host, Ns, Topology};
use heddle_sys::clock;
use heddle_sys::epoll::Events;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

/// A descriptor is asked after this many activations on which CPU its packets are processed.
const ASK_ORIGIN: u32 = 64;

/// The policies' view during a harvest. The clock is read once for all events that are placed: they happened
/// together.
struct HarvestHost<'a> {
    workers: &'a WorkerSet,
    now: &'a Cell<Ns>,
    index: usize,
    /// How many events the worker has for itself that are not in its run queue.
    held: usize,
    waits: &'a [Cell<Option<Ns>>],
}

impl Host for HarvestHost<'_> {
    fn now(&self) -> Ns {
        if self.now.get() == Ns::ZERO {
            self.now.set(clock::now());
        }
        self.now.get()
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.workers.infos)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        let held = if cpu.index() == self.index { self.held } else { 0 };
        self.workers.schedule.waiting(cpu.index()) + held
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.workers.idle.contains(cpu.index())
    }

    fn any_idle(&self) -> bool {
        !self.workers.idle.is_empty()
    }

    fn turns(&self, cpu: CpuId) -> &TurnTime {
        &self.workers.ports[cpu.index()].figures.turn
    }

    fn expected_wait(&self, cpu: CpuId) -> Ns {
        if cpu.index() == self.index {
            return self.turns(cpu).wait(self.now(), self.queue_len(cpu));
        }
        let wait = self.wait_elsewhere(cpu);
        // Assume each busy worker has as many unharvested events as this one just found. Otherwise a harvest
        // would look like a long queue, and half of it would move to workers that have the same ahead of
        // them.
        if self.is_idle(cpu) { wait } else { wait + Ns(self.average() * self.held as u64) }
    }
}

impl HarvestHost<'_> {
    fn average(&self) -> u64 {
        self.workers.ports[self.index].figures.turn.average().0
    }

    /// Returns the expected wait in another worker's run queue. The numbers behind it are written all the
    /// time by that worker, so they are read once in a harvest.
    fn wait_elsewhere(&self, cpu: CpuId) -> Ns {
        let known = &self.waits[cpu.index()];
        known.get().unwrap_or_else(|| {
            let wait = self.turns(cpu).wait(self.now(), self.queue_len(cpu));
            known.set(Some(wait));
            wait
        })
    }
}

impl WorkerState {
    /// Takes what has become ready from the kernel and puts it where the policy says. Up to `room` events are
    /// delivered directly.
    pub fn harvest(&mut self, inner: &Inner, timeout: Option<Ns>, room: usize) -> HarvestOutcome {
        let buffer = self.buffer(inner, inner.dispatch.table.has_high());
        // Taken out while its content is processed.
        let mut events = std::mem::replace(&mut self.buffers[buffer], Events::with_capacity(0));
        self.looked_at = Moment::now();
        let is_whole = self.port.epoll.wait(&mut events, timeout);
        let found = self.harvested(inner, &events, room);
        self.buffers[buffer] = events;
        if found == HarvestOutcome::Nothing && !is_whole { HarvestOutcome::Signal } else { found }
    }

    /// Processes the events of one `epoll_wait`.
    pub fn harvested(&mut self, inner: &Inner, events: &Events, room: usize) -> HarvestOutcome {
        self.room = if inner.dispatch.table.has_high() || !self.is_clear() { 0 } else { room };
        self.now.set(Ns::ZERO);
        self.is_harvested = true;
        self.waits.fill(Cell::new(None));
        let mut found = HarvestOutcome::Nothing;
        for (key, ready) in events.iter() {
            found = HarvestOutcome::Some;
            self.on_ready(inner, key.into(), ready);
        }
        if !self.hints.is_empty() {
            self.follow_hints(inner);
        }
        self.put_mine(inner, Enqueue::Wakeup);
        self.ahead = self.workers.schedule.waiting(self.index);
        found
    }

    /// Whether an event that enters this worker's run queue now would be the next to come out.
    fn is_clear(&self) -> bool {
        self.kind.is_fifo
            && self.workers.schedule.waiting(self.index) == 0
            && self.port.pins.load(Relaxed) == 0
    }

    /// A descriptor became ready.
    pub fn on_ready(&mut self, inner: &Inner, key: WatchKey, ready: u32) {
        let WatchKey { id, keeping } = key;
        let slot = inner.dispatch.table.slot(id.index);
        if slot.state.generation() != id.generation {
            return;
        }
        let flags = slot.flags.load(Relaxed);
        if flags & (flag::PUMP | flag::PROCESS) != 0 {
            self.room = 0;
            return inner.pump(id, self.port.number, &self.rng);
        }
        if keeping.is_some_and(|keeping| !slot.is_kept_by(keeping)) {
            return;
        }
        if self.kind.has_choice {
            ask_origin(slot);
        }
        let kept_by = if keeping.is_some() { None } else { Some(slot.keeper.load(Relaxed)) };
        self.event_ready(inner, id, slot, ready, kept_by);
        if let Some((id, slot)) = inner.dispatch.table.rider(id) {
            self.event_ready(inner, id, slot, ready, kept_by);
        }
    }

    /// `kept_by` is the port whose epoll keeps the descriptor's edges if another epoll reported this one.
    fn event_ready(
        &mut self,
        inner: &Inner,
        id: EventId,
        slot: &Slot,
        ready: u32,
        kept_by: Option<u32>,
    ) {
        let ready = slot.asked_of(ready);
        if ready == 0 {
            return;
        }
        if let Some(keeper) = kept_by.filter(|_| slot.is_edge_triggered()) {
            // A descriptor that is just being registered anew has no keeper. What is ready then is reported
            // by the new registration.
            if keeper != NONE && !self.hints.contains(&keeper) {
                self.hints.push(keeper);
            }
            return;
        }
        if self.room > 0 && self.seize(inner, id, slot, ready) {
            return;
        }
        if slot.activate(id.generation, ready, self.looked_at) == Next::Enqueue {
            self.place_activated(inner, id.index, slot);
        }
    }

    /// Gives an idle event that can go nowhere else to this thread: the common case, in one atomic operation.
    fn seize(&mut self, inner: &Inner, id: EventId, slot: &Slot, ready: u32) -> bool {
        const OTHERS: u32 = flag::PINNED | flag::HIGH | flag::COUNTED;
        let flags = slot.flags.load(Relaxed);
        let is_next = !self.kind.has_choice && self.mine.is_empty() && flags & OTHERS == 0;
        // A dispatch event is turned off when it is delivered, but not if it turns out to be over.
        let is_once = flags & flag::DISPATCH != 0;
        let is_next = is_next && !(is_once && slot.is_doubtful(self.looked_at));
        if !is_next || !slot.state.seize(id.generation, is_once) {
            return false;
        }
        if !is_once && slot.is_doubtful(self.looked_at) && slot.ready_now() == 0 {
            self.withhold(inner, id, slot, ready);
            return true;
        }
        self.room -= 1;
        self.push_fired(id, slot, ready);
        true
    }

    /// Puts an event that this thread has activated where the policy says.
    pub fn place_activated(&mut self, inner: &Inner, event: u32, slot: &Slot) {
        if slot.has(flag::PINNED) {
            return inner.dispatch.put(event, self.port.number, Enqueue::Wakeup, &self.rng);
        }
        let index = if self.kind.has_choice { self.place(event, slot) } else { self.index };
        let entry = Entry { event, high: slot.has(flag::HIGH) };
        if index != self.index {
            self.forward(inner, index, entry);
        } else if self.room > 0 && self.mine.is_empty() {
            self.room -= 1;
            self.deliver_one(inner, event);
        } else {
            self.mine.push(entry);
        }
    }

    fn place(&self, event: u32, slot: &Slot) -> usize {
        let (workers, home) = (&*self.workers, slot.home.load(Relaxed));
        let home_index = match home == self.port.number {
            true => self.index,
            false => workers.index_of(home).unwrap_or(event as usize % workers.len()),
        };
        let held = self.mine.len() + self.fired.len();
        let host =
            HarvestHost { workers, now: &self.now, index: self.index, held, waits: &self.waits };
        let origin = slot.origin.load(Relaxed);
        let here = workers.nearest_to(origin, Some(self.index)).unwrap_or(self.index);
        let caller = Caller { index: here, host: &host, rng: &self.rng };
        let index = workers.schedule.place(&caller, event, CpuId(home_index as u16));
        slot.drift.placed(workers.ports[index].number, index == home_index);
        index
    }

    /// Puts an event into another worker's run queue and wakes a worker for it.
    fn forward(&mut self, inner: &Inner, index: usize, entry: Entry) {
        let host = crate::workers::View(&self.workers);
        let caller = Caller { index, host: &host, rng: &self.rng };
        if self.workers.schedule.enqueue(&caller, index, &[entry], Enqueue::Wakeup).is_err() {
            return inner.dispatch.put(entry.event, self.port.number, Enqueue::Wakeup, &self.rng);
        }
        self.port.figures.add(Count::Forwarded, 1);
        self.waits[index].set(None);
        self.port.figures.add(Count::Rings, u64::from(self.workers.notify(index)));
    }

    /// Puts what this worker keeps into its run queue.
    pub fn put_mine(&mut self, inner: &Inner, why: Enqueue) {
        if self.mine.is_empty() {
            return;
        }
        let host = crate::workers::View(&self.workers);
        let caller = Caller { index: self.index, host: &host, rng: &self.rng };
        if self.workers.schedule.enqueue(&caller, self.index, &self.mine, why).is_err() {
            let put =
                |entry: &Entry| inner.dispatch.put(entry.event, self.port.number, why, &self.rng);
            self.mine.iter().for_each(put);
        }
        self.mine.clear();
    }

    /// Called when this worker has taken its share. If events are left that an idle worker may take, wakes
    /// one, which does the same in turn.
    pub fn wake_another(&self, has_stolen: bool) {
        let (workers, schedule) = (&*self.workers, &self.workers.schedule);
        if !self.kind.is_shared {
            return;
        }
        // The write to the queue comes before the look at the idle set (`IdleSet`).
        fence(SeqCst);
        if workers.idle.is_empty() {
            return;
        }
        let others = if has_stolen { 0..workers.len() } else { self.index..self.index + 1 };
        if others.into_iter().any(|index| schedule.waiting(index) > 0) {
            self.port.figures.add(Count::Rings, u64::from(workers.wake_any()));
        }
    }
}

/// Asks now and then on which CPU a socket's packets are processed.
fn ask_origin(slot: &Slot) {
    let count = slot.count.load(Relaxed);
    slot.count.store(count.wrapping_add(1), Relaxed);
    if count.is_multiple_of(ASK_ORIGIN) {
        let cpu = heddle_sys::socket::incoming_cpu(slot.fd.load(Relaxed));
        slot.origin.store(cpu.unwrap_or(NONE), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Port;
    use crate::telemetry::WorkerCounts;
    use crate::worker_state::Fate;
    use crate::{EventOptions, EventQueue, Interest, Worker};
    use heddle_sys::epoll::READ;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn busy_workers_are_assumed_to_have_as_many_events_and_idle_ones_none() {
        let port = |number| Arc::new(Port::new(number, WorkerCounts::default()).unwrap());
        let ports: Vec<_> = (0..3).map(port).collect();
        ports[0].figures.turn.set_average(Ns(1_000));
        let schedule = crate::schedule::make("hybrid", 8, 3).unwrap().unwrap();
        let workers = WorkerSet::new(0, ports, schedule);
        workers.idle.mark(2);
        let (now, waits) = (Cell::new(Ns(9_000)), vec![Cell::new(None); 3]);
        let host = HarvestHost { workers: &workers, now: &now, index: 0, held: 3, waits: &waits };
        let wait = |cpu| host.expected_wait(CpuId(cpu));
        assert_eq!((wait(0), wait(1), wait(2)), (Ns(3_000), Ns(3_000), Ns::ZERO));
        // Read once in a harvest.
        workers.ports[1].figures.begin_turn(Ns(9_000), 1, 1);
        workers.ports[1].figures.turn.set_average(Ns(500));
        assert_eq!(wait(1), Ns(3_000));
        waits[1].set(None);
        assert_eq!(wait(1), Ns(3_500));
    }

    /// A worker acts on what the kernel reported after another has handled it: nothing is reported in vain,
    /// and nothing is lost.
    #[test]
    fn readiness_that_is_over_is_not_delivered() {
        for policy in ["queue-affinity", "best-of-two", "hybrid", "fifo", "work-stealing"] {
            for case in 0..8 {
                let (room, dispatch, data) = (case & 1, case & 2 != 0, case & 4 != 0);
                let queue = EventQueue::builder().policy(policy).build().unwrap();
                let (mut quick, mut late) = (queue.worker().unwrap(), queue.worker().unwrap());
                let (near, mut far) = UnixStream::pair().unwrap();
                let options = EventOptions::default();
                let options = if dispatch { options.dispatch() } else { options };
                let id = queue.register(&near, Interest::READ, 7, options).unwrap();
                let looked_at = Moment::now();
                far.write_all(b"x").unwrap();
                near.set_nonblocking(true).unwrap();
                let read = |delivered: usize| {
                    if delivered > 0 {
                        let _ = (&near).read(&mut [0; 8]);
                    }
                    delivered
                };
                let delivered = |worker: &mut Worker| {
                    read(worker.wait_held(Some(Duration::ZERO)).unwrap().len())
                };
                // Whichever worker has it is the quick one. It releases the event at its next wait.
                if delivered(&mut quick) == 0 {
                    assert_eq!(delivered(&mut late), 1);
                    std::mem::swap(&mut quick, &mut late);
                }
                assert_eq!(delivered(&mut quick), 0);
                if dispatch {
                    queue.turn_on(id).unwrap();
                }
                if data {
                    far.write_all(b"y").unwrap();
                }
                late.state.looked_at = looked_at;
                late.state.room = room;
                let inner = Arc::clone(&late.inner);
                let keeping = Some(inner.dispatch.table.slot(id.index).keeping());
                late.state.on_ready(&inner, WatchKey { id, keeping }, READ);
                late.state.put_mine(&inner, Enqueue::Wakeup);
                let seized = read(late.state.fired.len());
                late.state.begin_turn(Fate::Seen);
                let sum = seized + delivered(&mut late) + delivered(&mut quick);
                assert_eq!(sum, usize::from(data), "{policy} {room} {dispatch} {data}");
            }
        }
    }
}
