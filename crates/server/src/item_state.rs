//! What memcached's items need beside the store: locks, unique numbers, and the position of a search.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use heddle_proto::udp::digest;

/// Locks for changes: more than the processors of a machine, so that two changes of different keys rarely meet.
const LOCKS: usize = 256;

/// The state that all connections of a server share.
pub(super) struct ItemState {
    locks: Vec<Mutex<()>>,
    last_cas: AtomicU64,
    pub(super) search: Mutex<Search>,
}

/// The state of the searches for expired items.
#[derive(Default)]
pub(super) struct Search {
    /// Where the next one begins.
    pub(super) from: Vec<u8>,
    /// When the last one ended.
    pub(super) last: Option<Instant>,
}

impl Default for ItemState {
    fn default() -> ItemState {
        ItemState {
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            // Above all numbers of an earlier server on the same directory, which took less than one per microsecond.
            last_cas: AtomicU64::new(now_ms().saturating_mul(1000)),
            search: Mutex::default(),
        }
    }
}

impl ItemState {
    /// Locks the changes of `key`.
    pub(super) fn lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let lock = &self.locks[digest(0, key) as usize % LOCKS];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last unique number of an item.
    pub(super) fn last_cas(&self) -> u64 {
        self.last_cas.load(Ordering::SeqCst)
    }

    /// A new unique number.
    pub(super) fn next_cas(&self) -> u64 {
        self.last_cas.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// The time in Unix milliseconds. Stores on disk outlive the process, so that no monotonic clock serves.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
