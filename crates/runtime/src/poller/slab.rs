//! A table of slots that are taken and given back in constant time, found by number without a lock, and never unmapped.
//!
//! Slots lie in segments of equal size; a segment is allocated when all slots before it are in use, and stays. A slot that is
//! free holds the number of the next free one. Its *generation* changes when it is given back, so a [`Key`] from before finds
//! nothing.
//!
//! What a key finds may be given back, and taken anew, while the finder still looks at it: the reference stays valid, what it
//! refers to may have changed hands. Users tolerate that (see [`super::source`]).

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Slots of a segment.
const SEGMENT: usize = 1 << 10;

/// Segments at most: four million slots, above any usual limit on descriptors (`fs.nr_open`).
const SEGMENTS: usize = 1 << 12;

/// Ends the list of free slots.
const NONE: u32 = u32::MAX;

/// Number and generation of a slot, in one word; never `u64::MAX`.
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

/// See the module's text.
pub(crate) struct Slab<T> {
    segments: [OnceLock<Box<[Slot<T>]>>; SEGMENTS],
    free: Mutex<Free>,
}

struct Free {
    /// The slot that was given back last.
    first: u32,
    /// How many slots were ever taken: those from here on are free, too.
    used: u32,
}

/// Two cache lines, which no other slot shares.
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
            free: Mutex::new(Free { first: NONE, used: 0 }),
        }
    }

    /// A panic under this lock (out of memory) leaves the list valid.
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (segment, offset) = (index as usize / SEGMENT, index as usize % SEGMENT);
        Some(&self.segments.get(segment)?.get()?[offset])
    }

    /// Takes a free slot, with what its last user left in it. The caller cannot be preempted.
    ///
    /// # Errors
    /// All four million are in use.
    pub(crate) fn take(&self) -> io::Result<Key> {
        let mut free = self.free();
        let index = if free.first == NONE { free.used } else { free.first };
        let Some(segment) = self.segments.get(index as usize / SEGMENT) else {
            return Err(io::Error::other("four million sockets are registered; no more fit"));
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

    /// Gives the slot of `key` back, which [`Slab::take`] returned. The caller cannot be preempted.
    pub(crate) fn give(&self, key: Key) {
        let slot = self.slot(key.index()).expect("a key comes from `take`");
        let mut free = self.free();
        let before = slot.generation.fetch_add(1, Ordering::Release);
        assert_eq!(before, key.generation(), "a slot is given back once");
        slot.next_free.store(free.first, Ordering::Relaxed);
        free.first = key.index();
    }

    /// What is in the slot of `key`; nothing if that was given back.
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
    fn slots_are_used_again_and_old_keys_find_nothing() {
        let slab: Slab<AtomicU32> = Slab::new();
        let keys: Vec<Key> = (0..3 * SEGMENT).map(|_| slab.take().unwrap()).collect();
        assert!(keys.iter().all(|&key| slab.get(key).is_some()));
        let distinct: HashSet<u32> = keys.iter().map(|key| key.index()).collect();
        assert_eq!(distinct.len(), keys.len());
        slab.give(keys[5]);
        assert!(slab.get(keys[5]).is_none());
        let again = slab.take().unwrap();
        assert_eq!(again.index(), keys[5].index(), "the table does not grow");
        assert!(again != keys[5] && slab.get(again).is_some() && slab.get(keys[5]).is_none());
        assert!(slab.get(Key(u64::MAX)).is_none() && slab.get(Key(7 << 20)).is_none());
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn giving_back_twice_is_a_mistake() {
        let slab: Slab<u32> = Slab::new();
        let key = slab.take().unwrap();
        slab.give(key);
        slab.give(key);
    }

    /// A slot's value is its owner's key while it has one: two owners at a time would see each other's.
    #[test]
    fn a_slot_has_one_owner_at_a_time() {
        let slab: Slab<AtomicU64> = Slab::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let slab = &slab;
                scope.spawn(move || {
                    for round in 0..10_000u64 {
                        let held: Vec<Key> =
                            (0..1 + round % 3).map(|_| slab.take().unwrap()).collect();
                        let mark = |key: &Key| key.0 << 2 | thread;
                        for key in &held {
                            slab.get(*key).unwrap().store(mark(key), Ordering::Relaxed);
                        }
                        for key in held {
                            let found = slab.get(key).unwrap().load(Ordering::Relaxed);
                            assert_eq!(found, mark(&key));
                            slab.give(key);
                        }
                    }
                });
            }
        });
        assert!(slab.free().used <= 12);
    }
}
