//! The mapped memory of a page, and typed references into it.

use heddle_core::AtomicHistogram;
use heddle_sys::fork::ChildMemory;
use heddle_sys::memory::{self, SharedMemory};
use std::io;
use std::os::fd::AsFd;
use std::slice;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::clock::Anchor;
use crate::counter::Counter;
use crate::layout::{Entry, Head, Header, Offsets, Shape};
use crate::names::Name;
use crate::ring::Slot;

/// Where the memory comes from, and so how it goes.
#[derive(Debug)]
enum Kind {
    Shared(SharedMemory, Option<ChildMemory>),
    Private,
}

/// Mapped memory of a shape, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    shape: Shape,
    at: Offsets,
    kind: Kind,
}

// SAFETY: an address of memory that lives as long as the value, and of which only atomics are reached.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `file`, which is at least as large as the shape and sealed against shrinking. If children of forks must
    /// find memory there, they get their own.
    pub fn shared(
        file: impl AsFd,
        shape: Shape,
        at: Offsets,
        for_children: bool,
    ) -> io::Result<Memory> {
        let memory = SharedMemory::reserve(at.end)?;
        // Unmapped on failure.
        let mut mapped =
            Memory { base: memory.base(), shape, at, kind: Kind::Shared(memory, None) };
        memory.map(file, true)?;
        let children = for_children.then(|| ChildMemory::in_place_of(&memory)).transpose()?;
        mapped.kind = Kind::Shared(memory, children);
        Ok(mapped)
    }

    /// Returns memory that no other process reaches.
    pub fn private(shape: Shape, at: Offsets) -> io::Result<Memory> {
        Ok(Memory { base: memory::reserve(at.end)?, shape, at, kind: Kind::Private })
    }

    /// Returns the bytes of the shape.
    pub fn size(&self) -> usize {
        self.at.end
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn header(&self) -> &Header {
        // SAFETY: the offset is 0, the memory larger, and any bits are valid atomics.
        unsafe { &*self.base.cast() }
    }

    /// Returns the moment at which the page was made, as it says.
    pub fn made(&self) -> Anchor {
        let [ns, ticks] = [&self.header().ns, &self.header().ticks];
        Anchor { ns: ns.load(Ordering::Relaxed), ticks: ticks.load(Ordering::Relaxed) }
    }

    /// Returns the bytes of all names.
    pub fn strings(&self) -> &[AtomicU8] {
        self.slice(self.at.strings, self.shape.strings as usize)
    }

    pub fn entries(&self) -> &[Entry] {
        self.slice(size_of::<Header>(), self.shape.entries())
    }

    pub fn counters(&self) -> &[Counter] {
        self.slice(self.at.counters, self.shape.counters as usize)
    }

    pub fn histograms(&self) -> &[AtomicHistogram] {
        self.slice(self.at.histograms, self.shape.histograms as usize)
    }

    pub fn heads(&self) -> &[Head] {
        self.slice(self.at.heads, self.shape.rings as usize)
    }

    /// Returns the slots of a ring.
    ///
    /// # Panics
    /// If there is no such ring.
    pub fn slots(&self, ring: usize) -> &[Slot] {
        let events = self.shape.ring_events as usize;
        &self.slice(self.at.slots, self.shape.rings as usize * events)[ring * events..][..events]
    }

    /// Returns the names of marks.
    pub fn marks(&self) -> &[Name] {
        self.slice(self.at.marks, self.shape.marks as usize)
    }

    /// Returns `count` values at an offset of this shape. `T` is made of atomics only.
    fn slice<T>(&self, at: usize, count: usize) -> &[T] {
        debug_assert!(
            at.is_multiple_of(align_of::<T>()) && at + count * size_of::<T>() <= self.at.end
        );
        // SAFETY: `Shape::offsets` has laid out the regions, each aligned to 128 and large enough for its count; the
        // memory is mapped to their end while `self` lives, and any bits are valid atomics.
        unsafe { slice::from_raw_parts(self.base.add(at).cast(), count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.kind, Kind::Private) {
            Kind::Shared(memory, children) => {
                drop(children);
                // SAFETY: references borrow from `self`.
                unsafe { memory.unmap() };
            }
            // SAFETY: it was reserved as a whole by `private`, and references borrow from `self`.
            Kind::Private => unsafe { memory::release(self.base, self.at.end) },
        }
    }
}
