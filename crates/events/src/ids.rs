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

/// Which of the registrations that keep a descriptor's edges, one after the other ([`crate::watch`]); modulo
/// 64, more than move while a report is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeping(u8);

impl Keeping {
    const BITS: u32 = 6;

    pub fn new(number: u32) -> Keeping {
        Keeping((number % (1 << Keeping::BITS)) as u8)
    }
}

/// The name of a registration within an epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchKey {
    pub id: EventId,
    /// Set if this is the descriptor's first registration, which keeps its edges.
    pub keeping: Option<Keeping>,
}

/// Above all slot indices, which are less than 2^25.
const KEEPER: u32 = 1 << 31;
const KEEPING_SHIFT: u32 = 31 - Keeping::BITS;
const INDEX: u32 = (1 << KEEPING_SHIFT) - 1;

impl From<WatchKey> for u64 {
    fn from(key: WatchKey) -> u64 {
        let EventId { index, generation } = key.id;
        let above = key.keeping.map_or(0, |Keeping(n)| KEEPER | u32::from(n) << KEEPING_SHIFT);
        EventId { index: index | above, generation }.into()
    }
}

impl From<u64> for WatchKey {
    fn from(raw: u64) -> WatchKey {
        let EventId { index, generation } = EventId::from(raw);
        let keeping = (index & KEEPER != 0).then(|| Keeping::new(index >> KEEPING_SHIFT));
        WatchKey { id: EventId { index: index & INDEX, generation }, keeping }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_what_it_was_made_of() {
        for index in [0, 1, INDEX] {
            for keeping in [None, Some(0), Some(1), Some(63), Some(64), Some(u32::MAX)] {
                let id = EventId { index, generation: u32::MAX };
                let key = WatchKey { id, keeping: keeping.map(Keeping::new) };
                assert_eq!(WatchKey::from(u64::from(key)), key);
            }
        }
    }
}
