//! Names of registrations for programs and for epoll.

/// No slot, no port.
pub(crate) const NONE: u32 = u32::MAX;

/// Names a registration forever: the number of a slot and its generation.
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

/// The name of a registration within an epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchKey {
    pub id: EventId,
    /// Whether this is the descriptor's first registration, which keeps its edges ([`crate::watch`]).
    pub is_keeper: bool,
}

/// Above all slot indices, which are less than 2^25.
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
