//! The table of events. A slot is what the policy knows as a task.

use crate::EventError;
use crate::sources::PUMPS;
use crate::spread::Drift;
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

/// No slot, no port.
pub(crate) const NONE: u32 = u32::MAX;

/// Bits of [`Slot::flags`].
pub(crate) mod flag {
    /// The handler need not drain: what is still ready when it is released is told again.
    pub const LEVEL: u32 = 1;
    /// High priority (SKQ, section 4.4).
    pub const HIGH: u32 = 2;
    /// Ends when it was told once.
    pub const ONCE: u32 = 4;
    /// Turned off when it was told, until it is turned on.
    pub const DISPATCH: u32 = 8;
    /// Told to the thread of one port only.
    pub const PINNED: u32 = 16;
    /// A descriptor of the queue's own, whose readiness stands for other events (`sources`).
    pub const PUMP: u32 = 32;
    /// A file that the system does not watch: always ready.
    pub const ALWAYS: u32 = 64;
    /// A connection whose packets have a CPU.
    pub const SOCKET: u32 = 128;
    /// Best-effort work (`Class::BE`), for the policies to come too.
    pub const BEST_EFFORT: u32 = 256;
    /// Kinds of events that are no descriptor's readiness, and of their pumps ([`crate::sources`]).
    pub const TIMER: u32 = 1 << 16;
    pub const SIGNAL: u32 = 1 << 17;
    pub const PROCESS: u32 = 1 << 18;
    pub const FILE: u32 = 1 << 19;
    pub const ORPHANS: u32 = 1 << 20;
    pub const KIND: u32 = TIMER | SIGNAL | PROCESS | FILE | ORPHANS;
    /// Told only with data that is not zero.
    pub const COUNTED: u32 = TIMER | SIGNAL | FILE;
}

/// A bit of [`Slot::ready`] that epoll never sets: what was seen may be over, because somebody has handled the event since.
pub(crate) const DOUBT: u32 = 1 << 29;

/// A moment, in [`MOMENT`] ticks of the time stamp counter, modulo 2^32: it comes again after half an hour at 2.5 GHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(u32);

/// Half a microsecond, about, which is more than the counters of two CPUs differ.
const MOMENT: u32 = 10;

impl Moment {
    pub fn now() -> Moment {
        Moment((clock::ticks() >> MOMENT) as u32)
    }

    /// Whether it was not clearly before `other`. One of long ago may seem to come later; that costs a look.
    pub fn may_follow(self, other: Moment) -> bool {
        self.0.wrapping_add(1).wrapping_sub(other.0) < 1 << 31
    }
}

/// What names a registration for ever: the number of a slot and its generation.
///
/// As a number (`u64::from`) it is never `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl From<EventId> for u64 {
    fn from(id: EventId) -> u64 {
        u64::from(id.generation) << 32 | u64::from(id.index)
    }
}

impl From<u64> for EventId {
    fn from(raw: u64) -> EventId {
        EventId { index: raw as u32, generation: (raw >> 32) as u32 }
    }
}

/// What a registration in an epoll is called there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchKey {
    pub id: EventId,
    /// The descriptor's first registration, which keeps its edges ([`crate::watch`]).
    pub is_keeper: bool,
}

/// Above all indices of slots, of which there are not 2^25.
const KEEPER: u32 = 1 << 31;

impl From<WatchKey> for u64 {
    fn from(key: WatchKey) -> u64 {
        let EventId { index, generation } = key.id;
        EventId { index: index | if key.is_keeper { KEEPER } else { 0 }, generation }.into()
    }
}

impl From<u64> for WatchKey {
    fn from(raw: u64) -> WatchKey {
        let EventId { index, generation } = EventId::from(raw);
        let id = EventId { index: index & !KEEPER, generation };
        WatchKey { id, is_keeper: index & KEEPER != 0 }
    }
}

/// Where a descriptor is registered. The ports' numbers, the keeper of its edges first.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub ports: Vec<u32>,
    /// The first of the ports counts it ([`Port::kept`](crate::port::Port)).
    pub is_counted: bool,
    /// No other queue has it ([`crate::claims`]).
    pub is_claimed: bool,
    /// The roster for which this was chosen.
    pub epoch: u64,
}

/// One event. In this order: what each event needs is in the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub state: State,
    /// What the program calls it.
    pub token: AtomicU64,
    /// What has happened since it was told last, by kind: bytes, expirations, a count, a status.
    pub data: AtomicU64,
    pub flags: AtomicU32,
    /// Readiness that was seen and not told.
    pub ready: AtomicU32,
    /// Readiness that is asked for.
    pub wants: AtomicU32,
    pub fd: AtomicI32,
    /// Another event on the same descriptor, which stands in epoll under this one's name ([`crate::descriptors`]).
    pub second: AtomicU32,
    /// The event under whose name this one stands in epoll, if it is not its own.
    pub first: AtomicU32,
    /// The port whose thread has it by default.
    pub home: AtomicU32,
    /// The CPU (of the system) that processed its packets last.
    pub origin: AtomicU32,
    /// How many activations there were, for what is done once in a while.
    pub count: AtomicU32,
    /// When it was let go last, where that is looked at ([`Moment`]).
    released: AtomicU32,
    /// The port whose epoll keeps the descriptor's edges ([`crate::watch`]).
    pub keeper: AtomicU32,
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
            count: AtomicU32::new(0),
            released: AtomicU32::new(0),
            keeper: AtomicU32::new(NONE),
            watch: Mutex::default(),
            drift: Drift::default(),
        }
    }
}

impl Slot {
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Whether what the descriptor is ready for is looked at when the event is released.
    pub fn is_looked_at(&self) -> bool {
        let flags = self.flags.load(Relaxed);
        flags & flag::LEVEL != 0 && flags & flag::ONCE == 0 && self.fd.load(Relaxed) >= 0
    }

    /// Whether each edge of a descriptor of the program's is told once.
    pub fn is_edge_triggered(&self) -> bool {
        const OTHERS: u32 = flag::LEVEL | flag::ALWAYS | flag::PUMP | flag::KIND;
        !self.has(OTHERS) && self.fd.load(Relaxed) >= 0
    }

    /// Whether the descriptor's edges are kept elsewhere than at home, as they are while it stays ready after a move.
    pub fn is_kept_elsewhere(&self) -> bool {
        let keeper = self.keeper.load(Relaxed);
        keeper != NONE && keeper != self.home.load(Relaxed)
    }

    /// What of `seen` is asked for.
    pub fn asked_of(&self, seen: u32) -> u32 {
        let wants = self.wants.load(Relaxed);
        let seen = if seen & BROKEN != 0 { seen | wants } else { seen };
        seen & (wants | BROKEN)
    }

    /// The descriptor was seen to be `ready` by a look into the kernel that began at `looked`.
    pub fn activate(&self, generation: u32, ready: u32, looked: Moment) -> Next {
        self.ready.fetch_or(ready, Relaxed);
        let next = self.state.activate(generation);
        if next == Next::Enqueue && self.is_doubtful(looked) {
            self.doubt();
        }
        next
    }

    /// What the descriptor is ready for now. While a thread has the event, nobody else can take that away.
    pub fn ready_now(&self) -> u32 {
        epoll::ready_now(self.fd.load(Relaxed), self.wants.load(Relaxed))
    }

    /// Whoever takes the event looks before anybody is told. For whoever has activated it, before it is in a lane.
    pub fn doubt(&self) {
        self.ready.fetch_or(DOUBT, Relaxed);
    }

    /// It is about to be let go.
    pub fn let_go_at(&self, moment: Moment) {
        self.released.store(moment.0, Relaxed);
    }

    /// Whether what a look into the kernel saw that began at `moment` may be over: the kernel had looked, and then somebody handled the
    /// event and let it go, before this thread said what was seen. For whoever has activated the event, so that nobody can have it.
    pub fn is_doubtful(&self, moment: Moment) -> bool {
        self.is_looked_at() && Moment(self.released.load(Relaxed)).may_follow(moment)
    }

    /// What kind of work it brings.
    pub fn class(&self) -> Class {
        if self.has(flag::BEST_EFFORT) { Class::BE } else { Class::LC }
    }

    /// Of which kind the event is, a bit of [`flag::KIND`]; 0 for a pump and for all other events.
    pub fn kind(&self) -> u32 {
        if self.has(flag::PUMP) { 0 } else { self.flags.load(Relaxed) & flag::KIND }
    }

    /// Adds to what is told: counts are added up, bits united. Whether there was nothing before.
    pub fn add_data(&self, data: u64) -> bool {
        let before = match self.has(flag::FILE) {
            true => self.data.fetch_or(data, Relaxed),
            false => self.data.fetch_add(data, Relaxed),
        };
        // The look at the state that follows comes after it: see `Inner::pass_over`.
        fence(SeqCst);
        before == 0
    }
}

/// What a new event is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub token: u64,
    pub flags: u32,
    pub wants: u32,
    pub fd: i32,
    pub class: Class,
    pub off: bool,
}

/// All slots of a queue, and room for its own pumps beyond what was asked for.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    back: Vec<u32>,
    fresh: u32,
    used: usize,
}

impl Table {
    pub fn new(capacity: usize) -> Table {
        Table {
            slots: (0..capacity + PUMPS).map(|_| Slot::default()).collect(),
            free: Mutex::default(),
        }
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many events are registered, the queue's own pumps left out. Looks at every slot: one whose registration has ended is in use
    /// until nobody has it and it waits in no lane.
    pub fn len(&self) -> usize {
        self.ids().filter(|id| !self.slot(id.index).has(flag::PUMP)).count()
    }

    /// How many slots are in use, those of pumps left out.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.free.lock().unwrap().used
    }

    pub fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// The slot of a registration that has not ended.
    pub fn alive(&self, id: EventId) -> Result<&Slot, EventError> {
        let slot = self.slots.get(id.index as usize).ok_or(EventError::Ended)?;
        slot.state.is_alive(id.generation).then_some(slot).ok_or(EventError::Ended)
    }

    pub fn id(&self, index: u32) -> EventId {
        EventId { index, generation: self.slot(index).state.generation() }
    }

    /// The other event on the descriptor of `carrier`.
    pub fn rider(&self, carrier: EventId) -> Option<(EventId, &Slot)> {
        let second = self.slot(carrier.index).second.load(Relaxed);
        if second == NONE {
            return None;
        }
        let (id, slot) = (self.id(second), self.slot(second));
        // Parted before it ended: if it is here still, the generation is that of the one meant.
        (slot.first.load(Relaxed) == carrier.index).then_some((id, slot))
    }

    /// All registrations.
    pub fn ids(&self) -> impl Iterator<Item = EventId> + '_ {
        let fresh = self.free.lock().unwrap().fresh;
        (0..fresh).map(|index| self.id(index)).filter(|id| self.alive(*id).is_ok())
    }

    pub fn begin(&self, new: &New) -> Result<EventId, EventError> {
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

    /// Gives a slot back that nobody has: [`crate::state::Next::Free`] says who may.
    pub fn free(&self, index: u32) {
        let mut free = self.free.lock().unwrap();
        free.back.push(index);
        free.used -= usize::from(!self.slot(index).has(flag::PUMP));
    }
}
