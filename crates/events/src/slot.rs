//! The table of events. To the policy, a slot is a task.

use crate::EventError;
use crate::drift::Drift;
use crate::ids::{EventId, Keeping, NONE};
use crate::state::{Next, State};
use heddle_core::Class;
use heddle_sys::epoll::BROKEN;
use heddle_sys::{clock, epoll};
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// The number of slots for a queue's own pumps.
const PUMPS: usize = 4;

/// Bits of [`Slot::flags`].
pub(crate) mod flag {
    /// The handler need not drain: what is still ready on release is reported again.
    pub const LEVEL: u32 = 1;
    /// High priority (SKQ, section 4.4).
    pub const HIGH: u32 = 2;
    /// Ends after one report.
    pub const ONCE: u32 = 4;
    /// Turned off by a report, until it is turned on.
    pub const DISPATCH: u32 = 8;
    /// Reported only to the thread of one port.
    pub const PINNED: u32 = 16;
    /// A descriptor of the queue's own whose readiness stands for other events (`sources`).
    pub const PUMP: u32 = 32;
    /// A file that the system does not watch: always ready.
    pub const ALWAYS: u32 = 64;
    /// Reported when nothing came for a time (`active`).
    pub const IDLE_LIMIT: u32 = 256;
    /// Best-effort work (`Class::BE`), also for policies that are chosen later.
    pub const BEST_EFFORT: u32 = 128;
    /// Kinds of events that do not stand for a descriptor's readiness, and of their pumps
    /// ([`crate::sources`]).
    pub const TIMER: u32 = 1 << 16;
    pub const SIGNAL: u32 = 1 << 17;
    pub const PROCESS: u32 = 1 << 18;
    pub const FILE: u32 = 1 << 19;
    pub const DEPARTED: u32 = 1 << 20;
    pub const KIND: u32 = TIMER | SIGNAL | PROCESS | FILE | DEPARTED;
    /// Reported only with data that is not zero.
    pub const COUNTED: u32 = TIMER | SIGNAL | FILE;
}

/// A bit of [`Slot::ready`] that epoll never sets: what was seen may be over, because another thread has
/// handled the event since.
pub(crate) const DOUBT: u32 = 1 << 29;

/// A bit of [`Slot::ready`] that epoll never sets: nothing came within the event's idle limit.
pub(crate) const IDLE: u32 = 1 << 26;

/// A bit of [`Slot::keeping`]: the registration is perhaps ending.
const MOVES: u32 = 1;

/// A moment, in units of 2^[`MOMENT`] ticks of the time stamp counter, modulo 2^32: it wraps after half an
/// hour at 2.5 GHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(u32);

/// About half a microsecond, which is more than the counters of two CPUs differ by.
const MOMENT: u32 = 10;

impl Moment {
    pub fn now() -> Moment {
        Moment((clock::ticks() >> MOMENT) as u32)
    }

    /// Whether this moment was not clearly before `other`. One of long ago may appear to be later; that costs
    /// a check.
    pub fn may_follow(self, other: Moment) -> bool {
        self.0.wrapping_add(1).wrapping_sub(other.0) < 1 << 31
    }
}

/// Where a descriptor is registered. The first port keeps its edges.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub ports: Vec<u32>,
    /// The first port counts it ([`Port::kept_edges`](crate::port::Port)).
    pub is_counted: bool,
    /// This queue has the claim on the descriptor ([`crate::claims`]).
    pub is_claimed: bool,
    /// The worker set for which the ports were chosen.
    pub epoch: u64,
}

/// One event. The order of fields puts what each event needs into the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub state: State,
    /// The program's name for it.
    pub token: AtomicU64,
    /// What has happened since the last report, by kind: bytes, expirations, a count, a status.
    pub data: AtomicU64,
    pub flags: AtomicU32,
    /// Readiness that was seen and not reported.
    pub ready: AtomicU32,
    /// Readiness that is asked for.
    pub wants: AtomicU32,
    pub fd: AtomicI32,
    /// The rider on this descriptor, which is registered in epoll under this event's name
    /// ([`crate::descriptors`]).
    pub second: AtomicU32,
    /// The carrier under whose name this event is registered in epoll, if it is a rider.
    pub first: AtomicU32,
    /// The port whose thread has it by default.
    pub home: AtomicU32,
    /// The system's CPU that last processed its packets.
    pub origin: AtomicU32,
    /// Twice the number of the registration that keeps the descriptor's edges, plus [`MOVES`].
    keeping: AtomicU32,
    /// When it was last released, if that matters ([`Moment`]).
    released: AtomicU32,
    /// The port whose epoll keeps the descriptor's edges ([`crate::watch`]).
    pub keeper: AtomicU32,
    /// How many activations there were, for what is done now and then.
    pub count: AtomicU32,
    /// When it was last reported, by the queue's clock, if it has an idle limit.
    pub active: AtomicU64,
    pub watch: Mutex<Watch>,
    pub drift: Drift,
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            state: State::default(),
            token: AtomicU64::new(0),
            data: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            ready: AtomicU32::new(0),
            wants: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            second: AtomicU32::new(NONE),
            first: AtomicU32::new(NONE),
            home: AtomicU32::new(NONE),
            origin: AtomicU32::new(NONE),
            keeping: AtomicU32::new(0),
            released: AtomicU32::new(0),
            keeper: AtomicU32::new(NONE),
            count: AtomicU32::new(0),
            active: AtomicU64::new(0),
            watch: Mutex::default(),
            drift: Drift::default(),
        }
    }
}

impl Slot {
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Whether the descriptor is checked for readiness when the event is released.
    pub fn is_checked_on_release(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        flags & flag::LEVEL != 0 && flags & flag::ONCE == 0 && self.fd.load(Relaxed) >= 0
    }

    /// Whether it is on a descriptor of the program's of which each edge is reported once.
    pub fn is_edge_triggered(&self) -> bool {
        const OTHERS: u32 = flag::LEVEL | flag::ALWAYS | flag::PUMP | flag::KIND;
        !self.has(OTHERS) && self.fd.load(Relaxed) >= 0
    }

    /// Whether the descriptor's edges are kept elsewhere than at home, as they are while it stays ready after
    /// a move.
    pub fn is_kept_elsewhere(&self) -> bool {
        let keeper = self.keeper.load(Relaxed);
        keeper != NONE && keeper != self.home.load(Relaxed)
    }

    /// The registration that keeps the edges may be replaced: reports wait until that is decided. The watch is
    /// locked, until after [`Slot::end_move`].
    pub fn begin_move(&self) {
        self.keeping.fetch_or(MOVES, SeqCst);
    }

    pub fn end_move(&self) {
        self.keeping.fetch_and(!MOVES, SeqCst);
    }

    /// Returns the name of a new registration, which is the one that keeps the edges from now on.
    pub fn next_keeping(&self) -> Keeping {
        Keeping::new(self.keeping.fetch_add(2, SeqCst).wrapping_add(2) >> 1)
    }

    /// Whether `keeping` is the registration that keeps the edges. What a former one reported is over, or the
    /// present one reports it too.
    pub fn is_kept_by(&self, keeping: Keeping) -> bool {
        let moves = self.keeping.load(SeqCst) & MOVES != 0;
        let _decided = moves.then(|| self.watch.lock().unwrap());
        self.keeping() == keeping
    }

    /// Returns the name of the registration that keeps the edges.
    pub fn keeping(&self) -> Keeping {
        Keeping::new(self.keeping.load(SeqCst) >> 1)
    }

    /// Returns the part of `seen` that is asked for.
    pub fn asked_of(&self, seen: u32) -> u32 {
        let wants = self.wants.load(Relaxed);
        let seen = if seen & BROKEN != 0 { seen | wants } else { seen };
        seen & (wants | BROKEN)
    }

    /// Activates the event: an `epoll_wait` that began at `looked_at` found the descriptor `ready`.
    pub fn activate(&self, generation: u32, ready: u32, looked_at: Moment) -> Next {
        self.ready.fetch_or(ready, Relaxed);
        let next = self.state.activate(generation);
        if next == Next::Enqueue && self.is_doubtful(looked_at) {
            self.doubt();
        }
        next
    }

    /// Returns what the descriptor is ready for now. While a thread holds the event, no other thread can
    /// change that by handling it.
    pub fn ready_now(&self) -> u32 {
        epoll::ready_now(self.fd.load(Relaxed), self.wants.load(Relaxed))
    }

    /// Has the thread that takes the event check before it reports. Called by the thread that activated it,
    /// before it is queued.
    pub fn doubt(&self) {
        self.ready.fetch_or(DOUBT, Relaxed);
    }

    /// Called just before a release.
    pub fn set_released_at(&self, moment: Moment) {
        self.released.store(moment.0, Relaxed);
    }

    /// Whether what an `epoll_wait` that began at `moment` saw may be over: after it, another thread may have
    /// handled and released the event, before this thread acted on it. Called by the thread that activated
    /// the event, so no other can have it.
    pub fn is_doubtful(&self, moment: Moment) -> bool {
        self.is_checked_on_release() && Moment(self.released.load(Relaxed)).may_follow(moment)
    }

    /// Returns the kind of work that it brings.
    pub fn class(&self) -> Class {
        if self.has(flag::BEST_EFFORT) { Class::BE } else { Class::LC }
    }

    /// Returns the event's kind, a bit of [`flag::KIND`]; 0 for pumps and all other events.
    pub fn kind(&self) -> u32 {
        if self.has(flag::PUMP) { 0 } else { self.flags.load(Relaxed) & flag::KIND }
    }

    /// Adds to what is reported: counts are added up, bits united. Returns whether there was nothing before.
    pub fn add_data(&self, data: u64) -> bool {
        let before = match self.has(flag::FILE) {
            true => self.data.fetch_or(data, Relaxed),
            false => self.data.fetch_add(data, Relaxed),
        };
        // The look at the state that follows comes after this: see `Dispatcher::pass_over`.
        fence(SeqCst);
        before == 0
    }
}

/// The properties of a new event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEvent {
    pub token: u64,
    pub flags: u32,
    pub wants: u32,
    pub fd: i32,
    pub class: Class,
    pub off: bool,
}

/// All slots of a queue, with room for its own pumps beyond the capacity.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
    free: Mutex<FreeList>,
    /// How many slots of high priority are in use.
    high: AtomicU32,
}

#[derive(Debug, Default)]
struct FreeList {
    back: Vec<u32>,
    fresh: u32,
    used: usize,
}

impl Table {
    pub fn new(capacity: usize) -> Table {
        Table {
            slots: (0..capacity + PUMPS).map(|_| Slot::default()).collect(),
            free: Mutex::default(),
            high: AtomicU32::new(0),
        }
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many events are registered, without the queue's own pumps. Looks at every slot, because
    /// the slot of an ended registration is in use until no thread and no run queue has it.
    pub fn len(&self) -> usize {
        self.ids().filter(|id| !self.slot(id.index).has(flag::PUMP)).count()
    }

    /// Returns how many slots are in use, without those of pumps.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.free.lock().unwrap().used
    }

    /// Whether there are events of high priority: while there are, all that is ready is harvested before anything is
    /// delivered.
    pub fn has_high(&self) -> bool {
        self.high.load(Relaxed) > 0
    }

    pub fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// Returns the slot of a registration that has not ended.
    pub fn alive(&self, id: EventId) -> Result<&Slot, EventError> {
        let slot = self.slots.get(id.index as usize).ok_or(EventError::Ended)?;
        slot.state.is_alive(id.generation).then_some(slot).ok_or(EventError::Ended)
    }

    pub fn id(&self, index: u32) -> EventId {
        EventId { index, generation: self.slot(index).state.generation() }
    }

    /// Returns the rider on the descriptor of `carrier`.
    pub fn rider(&self, carrier: EventId) -> Option<(EventId, &Slot)> {
        let second = self.slot(carrier.index).second.load(Relaxed);
        if second == NONE {
            return None;
        }
        let (id, slot) = (self.id(second), self.slot(second));
        // Riders are unlinked before they end: if it is still linked, the generation is that of the rider.
        (slot.first.load(Relaxed) == carrier.index).then_some((id, slot))
    }

    /// Returns all registrations.
    pub fn ids(&self) -> impl Iterator<Item = EventId> + '_ {
        let fresh = self.free.lock().unwrap().fresh;
        (0..fresh).map(|index| self.id(index)).filter(|id| self.alive(*id).is_ok())
    }

    pub fn begin(&self, new: &NewEvent) -> Result<EventId, EventError> {
        let index = self.reserve(new.flags & flag::PUMP != 0)?;
        let slot = self.slot(index);
        slot.token.store(new.token, Relaxed);
        slot.data.store(0, Relaxed);
        let class = if new.class == Class::BE { flag::BEST_EFFORT } else { 0 };
        slot.flags.store(new.flags | class, Relaxed);
        slot.ready.store(0, Relaxed);
        slot.wants.store(new.wants, Relaxed);
        slot.fd.store(new.fd, Relaxed);
        slot.second.store(NONE, Relaxed);
        slot.first.store(NONE, Relaxed);
        slot.home.store(NONE, Relaxed);
        slot.origin.store(NONE, Relaxed);
        slot.count.store(0, Relaxed);
        slot.keeper.store(NONE, Relaxed);
        slot.drift.begin();
        self.high.fetch_add(slot.has(flag::HIGH).into(), Relaxed);
        let generation = slot.state.begin(new.off);
        Ok(EventId { index, generation })
    }

    fn reserve(&self, is_pump: bool) -> Result<u32, EventError> {
        let mut free = self.free.lock().unwrap();
        let capacity = self.slots.len() - PUMPS;
        if !is_pump && free.used >= capacity {
            return Err(EventError::Full(capacity));
        }
        let index = match free.back.pop() {
            Some(index) => index,
            None if (free.fresh as usize) < self.slots.len() => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return Err(EventError::Full(capacity)),
        };
        free.used += usize::from(!is_pump);
        Ok(index)
    }

    /// Frees a slot that no thread and no queue has: [`crate::state::Next::Free`] tells who may.
    pub fn free(&self, index: u32) {
        self.high.fetch_sub(self.slot(index).has(flag::HIGH).into(), Relaxed);
        let mut free = self.free.lock().unwrap();
        free.back.push(index);
        free.used -= usize::from(!self.slot(index).has(flag::PUMP));
    }
}
