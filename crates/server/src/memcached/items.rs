//! Items of the store: reads, and changes that are atomic for their key.
//!
//! A change reads the old item, decides, and writes. A lock that the key selects is held meanwhile, inside the section
//! in which the runtime does not preempt, so that its holder always runs. Reads take no lock.
//!
//! An expired item is removed by the next access to its key. If the store is full, a part of it is searched for expired
//! items, and the write is tried again.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::item::Item;
use crate::item_state::now_ms;
use crate::service::Service;
use heddle_store::{CHUNK_KEYS, Section, StoreError};

/// Keys that a search for expired items visits.
const SEARCH_KEYS: usize = 4096;
/// The least time between two searches.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

/// Why an access failed.
#[derive(Debug)]
pub(super) enum Failure {
    Store(StoreError),
    /// The value under the key is not an item.
    Foreign,
    /// There is no room for the reply.
    Reply,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

/// A change of an item.
pub(super) enum Change<'v> {
    Keep,
    Delete,
    /// The same value until this time.
    Expire(u64),
    /// Flags, time and value; it gets a new unique number.
    Put(u32, u64, Cow<'v, [u8]>),
}

impl<S: Section> Service<S> {
    /// Reads the item of `key` into `bytes`; `None` if there is none.
    pub(super) fn item<'b>(
        &self,
        key: &[u8],
        bytes: &'b mut Vec<u8>,
    ) -> Result<Option<Item<'b>>, Failure> {
        bytes.clear();
        if !self.store.get(key, bytes)? {
            return Ok(None);
        }
        let item = Item::decode(bytes).ok_or(Failure::Foreign)?;
        if item.is_live(now_ms()) {
            return Ok(Some(item));
        }
        self.update(key, |_| (Change::Keep, ()))?;
        Ok(None)
    }

    /// Changes the item of `key` as `change` decides, which is called with the item and can be called twice.
    pub(super) fn update<'v, R>(
        &self,
        key: &[u8],
        change: impl Fn(Option<Item<'_>>) -> (Change<'v>, R),
    ) -> Result<R, Failure> {
        self.retried(|| self.section.run(|| self.change(key, &change)))
    }

    /// Stores an item, whatever the key has.
    pub(super) fn put(
        &self,
        key: &[u8],
        flags: u32,
        expires_ms: u64,
        value: &[u8],
    ) -> Result<(), Failure> {
        let put = || {
            let _lock = self.items.lock(key);
            self.write(key, Item { flags, expires_ms, cas: self.items.next_cas(), value })
        };
        self.retried(|| self.section.run(put))
    }

    /// Removes every item that exists when this is called. Those that are stored meanwhile stay.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let last = self.items.last_cas();
        let is_old = |item: &Item<'_>| item.cas <= last;
        let mut from = Some(Vec::new());
        while let Some(start) = from {
            from = self.remove_if(&start, is_old)?.1;
        }
        Ok(())
    }

    /// Removes those of the next [`CHUNK_KEYS`] items from `start` for which `is_old`. Returns how many were removed,
    /// and where to go on.
    fn remove_if(
        &self,
        start: &[u8],
        is_old: impl Fn(&Item<'_>) -> bool,
    ) -> Result<(usize, Option<Vec<u8>>), Failure> {
        let (mut old, mut last) = (Vec::new(), Vec::new());
        let seen = self.store.scan(start, CHUNK_KEYS, &mut |key, bytes| {
            if Item::decode(bytes).is_some_and(|item| is_old(&item)) {
                old.push(key.to_vec());
            }
            last = key.to_vec();
            true
        })?;
        // It may have been replaced meanwhile.
        let change = |item: Option<Item<'_>>| match item {
            Some(item) if is_old(&item) => (Change::Delete, ()),
            _ => (Change::Keep, ()),
        };
        old.iter().try_for_each(|key| self.update(key, change))?;
        // The next key in order.
        last.push(0);
        Ok((old.len(), (seen == CHUNK_KEYS).then_some(last)))
    }

    /// Tries a write again if the store was full and some expired items are gone.
    fn retried<R>(&self, write: impl Fn() -> Result<R, Failure>) -> Result<R, Failure> {
        match write() {
            Err(Failure::Store(StoreError::Full { .. })) if self.remove_expired() > 0 => write(),
            done => done,
        }
    }

    /// Searches the next part of the store for expired items; returns how many it removed.
    fn remove_expired(&self) -> usize {
        // Another thread searches.
        let Ok(mut search) = self.items.search.try_lock() else { return 0 };
        if search.last.is_some_and(|last| last.elapsed() < SEARCH_INTERVAL) {
            return 0;
        }
        let (now, mut removed) = (now_ms(), 0);
        for _ in 0..SEARCH_KEYS / CHUNK_KEYS {
            match self.remove_if(&search.from, |item| !item.is_live(now)) {
                Ok((count, next)) => {
                    removed += count;
                    search.from = next.unwrap_or_default();
                }
                Err(_) => break,
            }
            if search.from.is_empty() {
                break;
            }
        }
        search.last = Some(Instant::now());
        removed
    }

    fn change<'v, R>(
        &self,
        key: &[u8],
        change: &impl Fn(Option<Item<'_>>) -> (Change<'v>, R),
    ) -> Result<R, Failure> {
        let _lock = self.items.lock(key);
        // Not the guarded store: this is a section already.
        let (store, mut bytes) = (self.store.store(), Vec::new());
        let exists = store.get(key, &mut bytes)?;
        let item = match exists {
            true => Some(Item::decode(&bytes).ok_or(Failure::Foreign)?),
            false => None,
        };
        let live = item.filter(|item| item.is_live(now_ms()));
        let (change, result) = change(live);
        match (change, live) {
            (Change::Put(flags, expires_ms, value), _) => {
                let item = Item { flags, expires_ms, cas: self.items.next_cas(), value: &value };
                self.write(key, item)?;
            }
            (Change::Expire(expires_ms), Some(item)) => {
                self.write(key, Item { expires_ms, ..item })?;
            }
            (Change::Keep, Some(_)) => {}
            // Expired, or to be deleted.
            _ if exists => drop(store.delete(key)?),
            _ => {}
        }
        Ok(result)
    }

    fn write(&self, key: &[u8], item: Item<'_>) -> Result<(), Failure> {
        Ok(self.store.store().put(key, &item.encode())?)
    }
}
