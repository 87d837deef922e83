//! Which record a segment belongs to.

use hashbrown::HashTable;

/// A record: its kind and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Connection(u32),
    HalfOpen(u32),
    TimeWait(u32),
}

/// Bits of an index.
const INDEX_BITS: u32 = 30;
const INDEX: u32 = (1 << INDEX_BITS) - 1;

impl Target {
    fn pack(self) -> u32 {
        match self {
            Target::Connection(index) => index,
            Target::HalfOpen(index) => 1 << INDEX_BITS | index,
            Target::TimeWait(index) => 2 << INDEX_BITS | index,
        }
    }

    fn unpack(packed: u32) -> Target {
        let index = packed & INDEX;
        match packed >> INDEX_BITS {
            0 => Target::Connection(index),
            1 => Target::HalfOpen(index),
            _ => Target::TimeWait(index),
        }
    }
}

/// An entry: 8 bytes. With the hash in it, most others are told apart without a look at their records.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    target: u32,
}

/// A table of all flows. It holds no addresses: the caller compares those of the record.
#[derive(Debug)]
pub struct Flows {
    table: HashTable<Entry>,
}

/// The table takes its bucket from the low bits and its tag from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Flows {
    pub const fn new() -> Flows {
        Flows { table: HashTable::new() }
    }

    /// The record with `hash` for which `is_same` holds.
    #[inline]
    pub fn find(&self, hash: u32, mut is_same: impl FnMut(Target) -> bool) -> Option<Target> {
        let is_it = |entry: &Entry| entry.hash == hash && is_same(Target::unpack(entry.target));
        self.table.find(spread(hash), is_it).map(|entry| Target::unpack(entry.target))
    }

    pub fn insert(&mut self, hash: u32, target: Target) {
        let entry = Entry { hash, target: target.pack() };
        self.table.insert_unique(spread(hash), entry, |entry| spread(entry.hash));
    }

    pub fn remove(&mut self, hash: u32, target: Target) {
        let packed = target.pack();
        if let Ok(entry) = self.table.find_entry(spread(hash), |entry| entry.target == packed) {
            entry.remove();
        }
    }

    /// Leads what led to `from` to `to`.
    pub fn replace(&mut self, hash: u32, from: Target, to: Target) {
        let packed = from.pack();
        if let Some(entry) = self.table.find_mut(spread(hash), |entry| entry.target == packed) {
            entry.target = to.pack();
        }
    }

    /// Bytes of an entry in a table that is as empty as growth leaves it: 7/16 full.
    #[cfg(test)]
    pub const ENTRY: usize = (size_of::<Entry>() + 1) * 16 / 7;
}
