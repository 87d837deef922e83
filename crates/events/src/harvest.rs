//! From the kernel to lanes: what became ready, and where the policy puts it.
//!
//! What a thread harvests for itself goes into its lane under one lock. Where the lane is first in, first out, empty, and there is one
//! priority, an event that the thread would take out again at once is given to it past the lane: nobody can tell the difference, for
//! nobody else saw it there.

use crate::port::add;
use crate::queue::Inner;
use crate::roster::Roster;
use crate::schedule::{At, Entry};
use crate::seat::Seat;
use crate::slot::{EventId, Moment, NONE, Slot, WatchKey, flag};
use crate::state::Next;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, Enqueue, Host, Ns, Topology};
use heddle_sys::clock;
use heddle_sys::epoll::Events;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

/// After how many activations of a socket it is asked where its packets are processed.
const ASK_ORIGIN: u32 = 64;

/// What a look into the kernel brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Events.
    Some,
    /// Nothing: the time is over, or the bell.
    Nothing,
    /// Nothing, for a signal came.
    Signal,
}

/// What policies see while a thread harvests. The clock is read once for all that it places: they happened together.
struct Still<'a> {
    roster: &'a Roster,
    now: &'a Cell<Ns>,
    lane: usize,
    /// How many events the thread has for itself that are not in its lane.
    held: usize,
    waits: &'a [Cell<Option<Ns>>],
}

impl Host for Still<'_> {
    fn now(&self) -> Ns {
        if self.now.get() == Ns::ZERO {
            self.now.set(clock::now());
        }
        self.now.get()
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.roster.infos)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        let held = if cpu.index() == self.lane { self.held } else { 0 };
        self.roster.schedule.waiting(cpu.index()) + held
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.roster.idle.contains(cpu.index())
    }

    fn any_idle(&self) -> bool {
        !self.roster.idle.is_empty()
    }

    fn turns(&self, cpu: CpuId) -> &TurnTime {
        &self.roster.ports[cpu.index()].figures.turn
    }

    fn expected_wait(&self, cpu: CpuId) -> Ns {
        if cpu.index() == self.lane {
            return self.turns(cpu).wait(self.now(), self.queue_len(cpu));
        }
        let wait = self.wait_elsewhere(cpu);
        // Who is busy has as much in the kernel that nobody counts as this thread has just found. Otherwise a harvest would look like
        // a long queue, and half of it go to others that have the same before them.
        if self.is_idle(cpu) { wait } else { wait + Ns(self.average() * self.held as u64) }
    }
}

impl Still<'_> {
    fn average(&self) -> u64 {
        self.roster.ports[self.lane].figures.turn.average().0
    }

    /// The wait in another's lane. What others write all the time is far away: it is looked at once in a harvest.
    fn wait_elsewhere(&self, cpu: CpuId) -> Ns {
        let known = &self.waits[cpu.index()];
        known.get().unwrap_or_else(|| {
            let wait = self.turns(cpu).wait(self.now(), self.queue_len(cpu));
            known.set(Some(wait));
            wait
        })
    }
}

impl Seat {
    /// Takes from the kernel what has become ready, and puts it where the policy says; up to `room` events are given directly.
    pub fn harvest(&mut self, inner: &Inner, timeout: Option<Ns>, room: usize) -> Found {
        let buffer = self.buffer(inner, inner.has_high.load(Relaxed));
        // Taken out while the thread works on what is in it.
        let mut events = std::mem::replace(&mut self.buffers[buffer], Events::with_capacity(0));
        self.looked = Moment::now();
        let is_whole = self.port.epoll.wait(&mut events, timeout);
        let found = self.harvested(inner, &events, room);
        self.buffers[buffer] = events;
        if found == Found::Nothing && !is_whole { Found::Signal } else { found }
    }

    /// Takes up what a look into the kernel brought.
    pub fn harvested(&mut self, inner: &Inner, events: &Events, room: usize) -> Found {
        self.room = if inner.has_high.load(Relaxed) || !self.is_clear() { 0 } else { room };
        self.now.set(Ns::ZERO);
        self.is_harvested = true;
        self.waits.fill(Cell::new(None));
        let mut found = Found::Nothing;
        for (key, ready) in events.iter() {
            found = Found::Some;
            self.happened(inner, key.into(), ready);
        }
        if !self.hints.is_empty() {
            self.follow_hints(inner);
        }
        self.put_mine(inner, Enqueue::Wakeup);
        self.ahead = self.roster.schedule.waiting(self.lane);
        found
    }

    /// Whether an event that goes into the own lane now would be the next one to come out.
    fn is_clear(&self) -> bool {
        self.kind.is_fifo
            && self.roster.schedule.waiting(self.lane) == 0
            && self.port.pins.load(Relaxed) == 0
    }

    /// A descriptor became ready.
    pub fn happened(&mut self, inner: &Inner, key: WatchKey, ready: u32) {
        let WatchKey { id, is_keeper } = key;
        let slot = inner.table.slot(id.index);
        if slot.state.generation() != id.generation {
            return;
        }
        let flags = slot.flags.load(Relaxed);
        if flags & (flag::PUMP | flag::PROCESS) != 0 {
            self.room = 0;
            return inner.pump(id, self.port.number, &self.rng);
        }
        if flags & flag::SOCKET != 0 {
            ask_origin(slot);
        }
        let kept_by = if is_keeper { None } else { Some(slot.keeper.load(Relaxed)) };
        self.one_happened(inner, id, slot, ready, kept_by);
        if let Some((id, slot)) = inner.table.rider(id) {
            self.one_happened(inner, id, slot, ready, kept_by);
        }
    }

    /// `kept_by` is the port whose epoll keeps the descriptor's edges, if another one has reported it.
    fn one_happened(
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
            // While the descriptor is registered anew nobody keeps it; what is ready then is reported by the new registration.
            if keeper != NONE && !self.hints.contains(&keeper) {
                self.hints.push(keeper);
            }
            return;
        }
        if self.room > 0 && self.seize(inner, id, slot, ready) {
            return;
        }
        if slot.activate(id.generation, ready, self.looked) == Next::Enqueue {
            self.choose(inner, id.index, slot);
        }
    }

    /// Gives an event that nobody has, and that has nowhere else to go, to this thread: the common case, in one atomic operation.
    fn seize(&mut self, inner: &Inner, id: EventId, slot: &Slot, ready: u32) -> bool {
        const OTHERS: u32 = flag::PINNED | flag::HIGH | flag::COUNTED;
        let flags = slot.flags.load(Relaxed);
        let is_next = !self.kind.has_choice && self.mine.is_empty() && flags & OTHERS == 0;
        // One that is told once is turned off when it is told, and not if it is found to be over.
        let is_once = flags & flag::DISPATCH != 0;
        let is_next = is_next && !(is_once && slot.is_doubtful(self.looked));
        if !is_next || !slot.state.seize(id.generation, is_once) {
            return false;
        }
        if !is_once && slot.is_doubtful(self.looked) && slot.ready_now() == 0 {
            self.withhold(inner, id, slot, ready);
            return true;
        }
        self.room -= 1;
        self.give_away(id, slot, ready);
        true
    }

    /// Where an event goes that this thread has activated.
    pub fn choose(&mut self, inner: &Inner, event: u32, slot: &Slot) {
        if slot.has(flag::PINNED) {
            return inner.put(event, self.port.number, Enqueue::Wakeup, &self.rng);
        }
        let lane = if self.kind.has_choice { self.place(event, slot) } else { self.lane };
        let entry = Entry { event, high: slot.has(flag::HIGH) };
        if lane != self.lane {
            self.forward(inner, lane, entry);
        } else if self.room > 0 && self.mine.is_empty() {
            self.room -= 1;
            self.give_one(inner, event);
        } else {
            self.mine.push(entry);
        }
    }

    fn place(&self, event: u32, slot: &Slot) -> usize {
        let (roster, home) = (&*self.roster, slot.home.load(Relaxed));
        let lane_of_home = match home == self.port.number {
            true => self.lane,
            false => roster.lane_of(home).unwrap_or(event as usize % roster.lanes()),
        };
        let held = self.mine.len() + self.fired.len();
        let host = Still { roster, now: &self.now, lane: self.lane, held, waits: &self.waits };
        let here = roster.lane_near(slot.origin.load(Relaxed)).unwrap_or(self.lane);
        let at = At { lane: here, host: &host, rng: &self.rng };
        let lane = roster.schedule.place(&at, event, CpuId(lane_of_home as u16));
        slot.drift.placed(roster.ports[lane].number, lane == lane_of_home);
        lane
    }

    /// Puts an event into another thread's lane, and sees to it that somebody comes for it.
    fn forward(&mut self, inner: &Inner, lane: usize, entry: Entry) {
        let host = crate::roster::View(&self.roster);
        let at = At { lane, host: &host, rng: &self.rng };
        if self.roster.schedule.enqueue(&at, lane, &[entry], Enqueue::Wakeup).is_err() {
            return inner.put(entry.event, self.port.number, Enqueue::Wakeup, &self.rng);
        }
        add(&self.port.figures.forwarded, 1);
        self.waits[lane].set(None);
        add(&self.port.figures.rings, u64::from(self.roster.call(lane)));
    }

    /// Puts what the thread keeps into its lane.
    pub fn put_mine(&mut self, inner: &Inner, why: Enqueue) {
        if self.mine.is_empty() {
            return;
        }
        let host = crate::roster::View(&self.roster);
        let at = At { lane: self.lane, host: &host, rng: &self.rng };
        if self.roster.schedule.enqueue(&at, self.lane, &self.mine, why).is_err() {
            let put = |entry: &Entry| inner.put(entry.event, self.port.number, why, &self.rng);
            self.mine.iter().for_each(put);
        }
        self.mine.clear();
    }

    /// The thread has taken its part. If more waits where an idle one may take it, one is woken, which does the same when it has some.
    pub fn pass_on(&self, has_stolen: bool) {
        let (roster, schedule) = (&*self.roster, &self.roster.schedule);
        if !self.kind.is_shared {
            return;
        }
        // What is in a lane comes before the look at who is parked (`IdleSet`).
        fence(SeqCst);
        if roster.idle.is_empty() {
            return;
        }
        let others = if has_stolen { 0..roster.lanes() } else { self.lane..self.lane + 1 };
        if others.into_iter().any(|lane| schedule.waiting(lane) > 0) {
            add(&self.port.figures.rings, u64::from(roster.wake_any()));
        }
    }
}

/// Asks a socket once in a while where its packets are processed.
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
    use crate::worker::Fate;
    use crate::{EventOptions, EventQueue, Interest, Worker};
    use heddle_sys::epoll::READ;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn who_is_busy_is_supposed_to_have_as_much_before_it_and_who_idles_is_not() {
        let ports: Vec<_> = (0..3).map(|number| Arc::new(Port::new(number).unwrap())).collect();
        ports[0].figures.turn.set_average(Ns(1_000));
        let infos = vec![heddle_sys::topology::cpu_info(0); 3];
        let schedule = crate::schedule::make("hybrid", 8, 3).unwrap().unwrap();
        let roster = Roster::new(0, ports, infos, schedule);
        roster.idle.mark(2);
        let (now, waits) = (Cell::new(Ns(9_000)), vec![Cell::new(None); 3]);
        let host = Still { roster: &roster, now: &now, lane: 0, held: 3, waits: &waits };
        let wait = |cpu| host.expected_wait(CpuId(cpu));
        assert_eq!((wait(0), wait(1), wait(2)), (Ns(3_000), Ns(3_000), Ns::ZERO));
        // Looked at once in a harvest.
        roster.ports[1].figures.goes(Ns(9_000), 1, 1);
        roster.ports[1].figures.turn.set_average(Ns(500));
        assert_eq!(wait(1), Ns(3_000));
        waits[1].set(None);
        assert_eq!(wait(1), Ns(3_500));
    }

    /// A thread says what the kernel had seen, after another has handled it: nobody is told in vain. Nobody loses what is there.
    #[test]
    fn what_was_over_before_it_was_said_is_told_to_nobody() {
        for policy in ["queue-affinity", "best-of-two", "hybrid", "fifo", "work-stealing"] {
            for case in 0..8 {
                let (room, dispatch, data) = (case & 1, case & 2 != 0, case & 4 != 0);
                let queue = EventQueue::builder().policy(policy).build().unwrap();
                let (mut quick, mut late) = (queue.worker().unwrap(), queue.worker().unwrap());
                let (near, mut far) = UnixStream::pair().unwrap();
                let options = EventOptions::default();
                let options = if dispatch { options.dispatch() } else { options };
                let id = queue.register(&near, Interest::READ, 7, options).unwrap();
                let looked = Moment::now();
                far.write_all(b"x").unwrap();
                near.set_nonblocking(true).unwrap();
                let read = |told: usize| {
                    if told > 0 {
                        let _ = (&near).read(&mut [0; 8]);
                    }
                    told
                };
                let told = |worker: &mut Worker| {
                    read(worker.wait_held(Some(Duration::ZERO)).unwrap().len())
                };
                // Whichever has it is the quick one; it lets go when it comes back.
                if told(&mut quick) == 0 {
                    assert_eq!(told(&mut late), 1);
                    std::mem::swap(&mut quick, &mut late);
                }
                assert_eq!(told(&mut quick), 0);
                if dispatch {
                    queue.turn_on(id).unwrap();
                }
                if data {
                    far.write_all(b"y").unwrap();
                }
                late.seat.looked = looked;
                late.seat.room = room;
                let inner = Arc::clone(&late.inner);
                late.seat.happened(&inner, WatchKey { id, is_keeper: true }, READ);
                late.seat.put_mine(&inner, Enqueue::Wakeup);
                let seized = read(late.seat.fired.len());
                late.seat.goes(Fate::Seen);
                let sum = seized + told(&mut late) + told(&mut quick);
                assert_eq!(sum, usize::from(data), "{policy} {room} {dispatch} {data}");
            }
        }
    }
}
