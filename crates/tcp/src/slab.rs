//! Values by index, with generations: a stale index is found out.

use alloc::vec::Vec;

/// Values per chunk. Chunks do not move, so growing never copies what is there.
const CHUNK: usize = 64;
/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Content<T> {
    /// The next free slot.
    Free(u32),
    Used(T),
}

/// A slot: the value, and how often the slot was freed.
#[derive(Debug)]
pub struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

/// A growing array with a list of free slots; the last slot freed is the next one used.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: u32,
    length: u32,
}

impl<T> Slab<T> {
    pub const fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), free: NONE, length: 0 }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// The index that the next value will have.
    pub fn next_index(&mut self) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        self.free
    }

    /// Stores `value`; returns its index.
    pub fn insert(&mut self, value: T) -> u32 {
        let index = self.next_index();
        let slot = self.slot_mut(index).expect("the list of free slots holds slots");
        let Content::Free(next) = slot.content else { unreachable!("a free slot holds a value") };
        slot.content = Content::Used(value);
        self.free = next;
        self.length += 1;
        index
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let next = |i: usize| if i + 1 == CHUNK { NONE } else { first + i as u32 + 1 };
        let slot = |i| Slot { generation: 0, content: Content::Free(next(i)) };
        self.chunks.push((0..CHUNK).map(slot).collect());
        self.free = first;
    }

    /// Removes and returns the value at `index`.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let free = self.free;
        let slot = self.slot_mut(index)?;
        if matches!(slot.content, Content::Free(_)) {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let content = core::mem::replace(&mut slot.content, Content::Free(free));
        self.free = index;
        self.length -= 1;
        match content {
            Content::Used(value) => Some(value),
            Content::Free(_) => None,
        }
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    /// The value at `index`.
    pub fn get(&self, index: u32) -> Option<&T> {
        match &self.slot(index)?.content {
            Content::Used(value) => Some(value),
            Content::Free(_) => None,
        }
    }

    /// The value at `index`.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match &mut self.slot_mut(index)?.content {
            Content::Used(value) => Some(value),
            Content::Free(_) => None,
        }
    }

    /// How often the slot at `index` was freed.
    pub fn generation(&self, index: u32) -> u32 {
        self.slot(index).map_or(0, |slot| slot.generation)
    }

    /// All values with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flatten().enumerate();
        slots.filter_map(|(index, slot)| match &slot.content {
            Content::Used(value) => Some((index as u32, value)),
            Content::Free(_) => None,
        })
    }
}

impl<T> Slab<T> {
    /// The values in `count` slots from slot `first` on, and whether there are slots behind these.
    pub fn part(&self, first: usize, count: usize) -> (impl Iterator<Item = &T>, bool) {
        let values = (first..first.saturating_add(count)).filter_map(|slot| self.get(slot as u32));
        (values, first.saturating_add(count) < self.chunks.len() * CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_with_another_generation() {
        let mut slab = Slab::new();
        let indices: Vec<u32> = (0..CHUNK as u32 + 1).map(|i| slab.insert(i)).collect();
        assert_eq!((slab.len(), slab.generation(indices[3])), (CHUNK + 1, 0));
        assert_eq!(slab.remove(indices[3]), Some(3));
        assert!(slab.remove(indices[3]).is_none() && slab.get(indices[3]).is_none());
        assert_eq!(slab.insert(100), indices[3]);
        assert_eq!((slab.generation(indices[3]), slab.iter().count()), (1, CHUNK + 1));
        assert!(slab.get(u32::MAX).is_none() && slab.get_mut(1 << 20).is_none());
    }
}
