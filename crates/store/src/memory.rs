//! An ordered store in memory.
//!
//! A skip list, because neither its readers nor its scans hold a lock: a reader that is switched out does not
//! stop the writers, so a bench measures scheduling and not a lock convoy. Each value has its own cell,
//! because replacing an entry of the list is a removal and an insertion, and a reader in between would miss
//! an existing key (I3). The cell's lock is held only to copy one pointer.

use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;

use super::{Cursor, Store, StoreError, Visit};

type Key = Box<[u8]>;
type Value = Arc<[u8]>;

/// Bytes of an entry in addition to its key and value: a node of the list, and an allocator's overhead for
/// three pieces.
const ENTRY: usize = 192;

/// The accounted size of an entry.
#[derive(Clone, Copy)]
enum Counted {
    /// In bytes; 0 until its creator has stored the value.
    As(usize),
    /// Removed from the list: it no longer counts.
    Gone,
}

struct Cell(RwLock<(Value, Counted)>);

impl Cell {
    fn new(value: Value) -> Cell {
        Cell(RwLock::new((value, Counted::As(0))))
    }

    fn load(&self) -> Value {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn counted(&self) -> usize {
        match self.0.read().unwrap_or_else(PoisonError::into_inner).1 {
            Counted::As(bytes) => bytes,
            Counted::Gone => 0,
        }
    }

    /// Stores a value that makes the entry count for `bytes`; returns how many bytes it counted for before
    /// and counts for now.
    fn store(&self, value: Value, bytes: usize) -> (usize, usize) {
        let (old, counts) = {
            let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let counts = match &mut slot.1 {
                Counted::As(now) => (std::mem::replace(now, bytes), bytes),
                Counted::Gone => (0, 0),
            };
            (std::mem::replace(&mut slot.0, value), counts)
        };
        // The old value is freed after the lock is released.
        drop(old);
        counts
    }

    /// Marks the entry as removed; returns how many bytes it counted for.
    fn remove(&self) -> usize {
        let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut slot.1, Counted::Gone) {
            Counted::As(bytes) => bytes,
            Counted::Gone => 0,
        }
    }
}

/// The in-memory [`Store`]; its contents end with the process.
pub struct MemoryStore {
    map: SkipMap<Key, Cell>,
    /// The accounted size of all entries.
    used: AtomicUsize,
    most: usize,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::within(usize::MAX)
    }
}

impl MemoryStore {
    /// An empty store without a limit.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// An empty store for `most` bytes of keys, values and entries. What is deleted or overwritten stops
    /// counting at once; its memory is freed a little later, when no thread can still be reading it.
    pub fn within(most: usize) -> MemoryStore {
        MemoryStore { map: SkipMap::new(), used: AtomicUsize::new(0), most }
    }

    fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Reserves room for an entry that will count for `bytes`; returns how much was reserved. If there is not
    /// enough, it reserves only the growth over the existing entry, which is all that an overwrite needs.
    fn room(&self, key: &[u8], bytes: usize) -> Option<usize> {
        if self.reserve(bytes) {
            return Some(bytes);
        }
        let more = bytes.saturating_sub(self.map.get(key)?.value().counted());
        self.reserve(more).then_some(more)
    }
}

impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn describe(&self) -> String {
        "memory (skip list, not durable)".into()
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError> {
        let Some(entry) = self.map.get(key) else { return Ok(false) };
        out.extend_from_slice(&entry.value().load());
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let bytes = key.len() + value.len() + ENTRY;
        let room = self.room(key, bytes).ok_or(StoreError::Full { most: self.most })?;
        let value: Value = value.into();
        let entry = self.map.get_or_insert_with(key.into(), || Cell::new(value.clone()));
        // A delete can remove the entry just before this. Then the order was put, delete, which is correct,
        // since the two overlap.
        let (before, now) = entry.value().store(value, bytes);
        // A new key has nothing else to count.
        let counted = before + room;
        if now < counted {
            self.used.fetch_sub(counted - now, Ordering::Relaxed);
        } else if now > counted {
            self.used.fetch_add(now - counted, Ordering::Relaxed);
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let Some(entry) = self.map.remove(key) else { return Ok(false) };
        self.used.fetch_sub(entry.value().remove(), Ordering::Relaxed);
        Ok(true)
    }

    fn exists(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.map.contains_key(key))
    }

    fn cursor<'s>(&'s self, from: &[u8]) -> Result<Box<dyn Cursor + 's>, StoreError> {
        Ok(Box::new(Walk { next: self.map.lower_bound(Bound::Included(from)) }))
    }

    fn len_estimate(&self) -> u64 {
        self.map.len() as u64
    }
}

struct Walk<'s> {
    next: Option<Entry<'s, Key, Cell>>,
}

impl Cursor for Walk<'_> {
    fn chunk(&mut self, max: usize, visit: Visit<'_>) -> Result<usize, StoreError> {
        let mut seen = 0;
        while seen < max
            && let Some(entry) = self.next.take()
        {
            seen += 1;
            if !visit(entry.key(), &entry.value().load()) {
                break;
            }
            self.next = entry.next();
        }
        Ok(seen)
    }
}
