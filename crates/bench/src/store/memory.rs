//! An ordered store in memory.
//!
//! A skip list, because neither its readers nor its scans hold a lock: a system that happens to switch
//! out a reader does not stop the writers, so what a bench sees is scheduling and not a lock convoy.
//! A value sits in a cell of its own, because replacing an entry of the list is a removal and an
//! insertion, and a reader in between would miss a key that exists. The cell's lock is held for the
//! copy of one pointer.

use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;

use super::{Cursor, Store, StoreError, Visit};

type Key = Box<[u8]>;
type Value = Arc<[u8]>;

struct Cell(RwLock<Value>);

impl Cell {
    fn load(&self) -> Value {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, value: Value) {
        let old = {
            let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *slot, value)
        };
        // The old value is freed after the lock is.
        drop(old);
    }
}

/// The in-memory [`Store`]; its contents end with the process.
#[derive(Default)]
pub struct MemoryStore {
    map: SkipMap<Key, Cell>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
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
        let value: Value = value.into();
        let entry = self.map.get_or_insert_with(key.into(), || Cell(RwLock::new(value.clone())));
        // A delete may take the entry out just before this: then the order was put, delete, which is
        // right, since the two overlap.
        entry.value().store(value);
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.map.remove(key).is_some())
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
