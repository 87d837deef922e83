//! A table of slots that are allocated and freed in constant time, found by number without a lock, and never unmapped.
//!
//! Slots lie in segments of equal size. A segment is allocated once all slots before it are in use, and is never
//! freed. A free slot holds the number of the next free one. Freeing a slot changes its *generation*, so an older
//! [`Key`] finds nothing.
//!
//! A slot may be freed and allocated again while another thread still uses what a key found: the reference stays
//! valid, but the slot may have another owner. Users tolerate that (see [`super::source`]).

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Slots in a segment.
const SEGMENT: usize = 1 << 10;

/// Maximum number of segments: four million slots, above any usual limit on descriptors (`fs.nr_open`).
const SEGMENTS: usize = 1 << 12;

/// Ends the list of free slots.
const NONE: u32 = u32::MAX;

/// Number and generation of a slot in one word; never `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    fn new(index: u32, generation: u32) -> Key {
        Key(u64::from(generation) << 32 | u64::from(index))
    }

    fn index(self) -> u32 {
        self.0 as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// See the module documentation.
pub(crate) struct Slab<T> {
    segments: [OnceLock<Box<[Slot<T>]>>; SEGMENTS],
    free_list: Mutex<FreeList>,
}

struct FreeList {
    /// The slot that was freed last.
    first: u32,
    /// Number of slots ever allocated: all from this one on are free, too.
    used: u32,
}

/// Two cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Slot<T> {
    value: T,
    generation: AtomicU32,
    next_free: AtomicU32,
}

impl<T: Default> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab {
            segments: [const { OnceLock::new() }; SEGMENTS],
            free_list: Mutex::new(FreeList { first: NONE, used: 0 }),
        }
    }

    /// Locks the list of free slots. A panic under this lock (out of memory) leaves the list valid.
    fn free_list(&self) -> MutexGuard<'_, FreeList> {
        self.free_list.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (segment, offset) = (index as usize / SEGMENT, index as usize % SEGMENT);
        Some(&self.segments.get(segment)?.get()?[offset])
    }

    /// Allocates a slot, which still holds what its last owner left in it. The caller holds off preemption.
    ///
    /// # Errors
    /// Fails if all four million slots are in use.
    pub(crate) fn allocate(&self) -> io::Result<Key> {
        let mut free = self.free_list();
        let index = if free.first == NONE { free.used } else { free.first };
        let Some(segment) = self.segments.get(index as usize / SEGMENT) else {
            return Err(io::Error::other(
                "cannot watch another descriptor: four million are registered, the maximum",
            ));
        };
        let slot = &segment.get_or_init(|| (0..SEGMENT).map(|_| Slot::default()).collect())
            [index as usize % SEGMENT];
        if free.first == NONE {
            free.used += 1;
        } else {
            free.first = slot.next_free.load(Ordering::Relaxed);
        }
        Ok(Key::new(index, slot.generation.load(Ordering::Relaxed)))
    }

    /// Frees the slot of `key`, which [`Slab::allocate`] returned. The caller holds off preemption.
    pub(crate) fn free(&self, key: Key) {
        let slot = self.slot(key.index()).expect("a key comes from `allocate`");
        let mut free = self.free_list();
        let before = slot.generation.fetch_add(1, Ordering::Release);
        assert_eq!(before, key.generation(), "a slot is freed once");
        slot.next_free.store(free.first, Ordering::Relaxed);
        free.first = key.index();
    }

    /// Returns the value in the slot of `key`; `None` if that was freed.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key.index())?;
        (slot.generation.load(Ordering::Acquire) == key.generation()).then_some(&slot.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn freed_slots_are_reused_and_old_keys_find_nothing() {
        let slab: Slab<AtomicU32> = Slab::new();
        let keys: Vec<Key> = (0..3 * SEGMENT).map(|_| slab.allocate().unwrap()).collect();
        assert!(keys.iter().all(|&key| slab.get(key).is_some()));
        let distinct: HashSet<u32> = keys.iter().map(|key| key.index()).collect();
        assert_eq!(distinct.len(), keys.len());
        slab.free(keys[5]);
        assert!(slab.get(keys[5]).is_none());
        let again = slab.allocate().unwrap();
        assert_eq!(again.index(), keys[5].index(), "the table does not grow");
        assert!(again != keys[5] && slab.get(again).is_some() && slab.get(keys[5]).is_none());
        assert!(slab.get(Key(u64::MAX)).is_none() && slab.get(Key(7 << 20)).is_none());
    }

    #[test]
    #[should_panic(expected = "freed once")]
    fn freeing_a_slot_twice_panics() {
        let slab: Slab<u32> = Slab::new();
        let key = slab.allocate().unwrap();
        slab.free(key);
        slab.free(key);
    }

    /// Each owner writes its key into its slot: two owners at a time would see each other's.
    #[test]
    fn a_slot_has_one_owner_at_a_time() {
        let slab: Slab<AtomicU64> = Slab::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let slab = &slab;
                scope.spawn(move || {
                    for round in 0..10_000u64 {
                        let held: Vec<Key> =
                            (0..1 + round % 3).map(|_| slab.allocate().unwrap()).collect();
                        let mark = |key: &Key| key.0 << 2 | thread;
                        for key in &held {
                            slab.get(*key).unwrap().store(mark(key), Ordering::Relaxed);
                        }
                        for key in held {
                            let found = slab.get(key).unwrap().load(Ordering::Relaxed);
                            assert_eq!(found, mark(&key));
                            slab.free(key);
                        }
                    }
                });
            }
        });
        assert!(slab.free_list().used <= 12);
    }
}
