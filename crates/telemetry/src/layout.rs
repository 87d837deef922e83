//! What lies where in a page. Offsets follow from the numbers in the header alone, by the same function on both sides.
//!
//! ```text
//! header | entries | strings | counters | histograms | positions of rings | rings | names of marks
//! ```
//!
//! An entry names a counter, a histogram or a ring, in that order; it is shown once the writer has taken what it names.

use heddle_core::AtomicHistogram;
use std::collections::HashMap;
use std::io;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::counter::Counter;
use crate::names::Name;
use crate::ring::Slot;

/// `HEDDLEPG`, as bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"HEDDLEPG");
/// Changes with everything in this file, and with the form of events and histograms; not with what is added where a
/// page had zeros and at its end, which an older reader does not look at.
pub(crate) const VERSION: u32 = 1;

/// What a page is made for. Names follow those of Prometheus: `heddle_<layer>_<what>_total` for a counter that only
/// grows, without `_total` for a number that also falls, `_seconds` for histograms of nanoseconds. Labels are
/// `key=value,...`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout<'a> {
    /// The labels of everything here.
    pub labels: &'a str,
    /// Name and labels of each counter. 16 of them fill two cache lines: those of one thread should not share them with
    /// another's.
    pub counters: &'a [(&'a str, &'a str)],
    /// Name and labels of each histogram.
    pub histograms: &'a [(&'a str, &'a str)],
    /// Name and labels of each ring.
    pub rings: &'a [(&'a str, &'a str)],
    /// Events that a ring holds: a power of two. Their memory is used once events are recorded.
    pub ring_events: usize,
    /// Names that marks can have ([`crate::Page::name_mark`]). Their memory is used once they are written.
    pub marks: usize,
}

/// Counters from one worker's to the next: whole cache lines.
pub const WORKERS_APART: usize = 16;

/// Returns the counters of workers for a [`Layout`], those of each [`WORKERS_APART`] from the last one's: `names`, with
/// each worker's labels.
///
/// # Panics
/// If there are more names than that.
#[must_use]
pub fn of_workers<'a>(names: &[&'a str], labels: &'a [String]) -> Vec<(&'a str, &'a str)> {
    assert!(names.len() <= WORKERS_APART, "{} counters of a worker", names.len());
    let mut counters = vec![("", ""); labels.len() * WORKERS_APART];
    for (worker, labels) in labels.iter().enumerate() {
        let of_worker = names.iter().zip(&mut counters[worker * WORKERS_APART..]);
        of_worker.for_each(|(name, counter)| *counter = (*name, labels.as_str()));
    }
    counters
}

/// The beginning of a page.
#[repr(C, align(128))]
pub(crate) struct Header {
    /// [`MAGIC`]; written last.
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// The process, by its own namespace.
    pub pid: AtomicU32,
    /// The moment at which the page was made: `CLOCK_MONOTONIC` and time stamp counter.
    pub ns: AtomicU64,
    pub ticks: AtomicU64,
    /// The number of the clock of events ([`crate::clock::Clock`]).
    pub clock: AtomicU32,
    /// The numbers of a [`Shape`].
    pub counters: AtomicU32,
    pub histograms: AtomicU32,
    pub rings: AtomicU32,
    pub ring_events: AtomicU32,
    pub strings: AtomicU32,
    /// Where the labels of the page are ([`place`]): one number, because they may change.
    pub labels: AtomicU64,
    /// The last number of the shape; 0 in pages of earlier versions.
    pub marks: AtomicU32,
    padding: AtomicU32,
    reserved: [AtomicU64; 7],
    /// Until when events are recorded, by the page's clock; 0 if they are not. Readers write it, so it has a cache line
    /// of its own.
    pub until: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 256 && offset_of!(Header, until) == 128);

/// The bytes that labels which replace the page's own may have. There is room for two: the present ones stay while the
/// next are written.
pub(crate) const LABELS: usize = 256;

/// Returns a place in the strings as one number.
pub(crate) fn place((at, len): (u32, u32)) -> u64 {
    u64::from(at) | u64::from(len) << 32
}

/// The names of a counter, a histogram or a ring.
#[repr(C)]
pub(crate) struct Entry {
    /// Not 0 once it is shown.
    pub shown: AtomicU64,
    pub name: AtomicU32,
    pub name_len: AtomicU32,
    pub labels: AtomicU32,
    pub labels_len: AtomicU32,
    reserved: AtomicU64,
}

/// The position of a ring, on cache lines of its own.
#[repr(C, align(128))]
pub(crate) struct Head(pub AtomicU64);

/// The numbers from which every offset follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub counters: u32,
    pub histograms: u32,
    pub rings: u32,
    pub ring_events: u32,
    pub strings: u32,
    pub marks: u32,
}

/// The offsets of a [`Shape`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub strings: usize,
    pub counters: usize,
    pub histograms: usize,
    pub heads: usize,
    pub slots: usize,
    pub marks: usize,
    pub end: usize,
}

/// More than any program needs, and so little that no sum here overflows and no reader maps too much.
const MOST: Shape = Shape {
    counters: 1 << 16,
    histograms: 1 << 12,
    rings: 1 << 12,
    ring_events: 1 << 20,
    strings: 1 << 24,
    marks: 1 << 12,
};
const LARGEST: usize = 1 << 30;

impl Shape {
    /// Returns the offsets; `None` if a number is out of bounds.
    pub fn offsets(&self) -> Option<Offsets> {
        let fits = self.counters <= MOST.counters
            && self.histograms <= MOST.histograms
            && self.rings <= MOST.rings
            && self.ring_events <= MOST.ring_events
            && self.strings <= MOST.strings
            && self.marks <= MOST.marks
            && (self.rings == 0 || self.ring_events.is_power_of_two());
        let after =
            |at: usize, count: usize, size: usize| (at + count * size).next_multiple_of(128);
        let [counters, histograms, rings] =
            [self.counters, self.histograms, self.rings].map(|n| n as usize);
        let events = if rings == 0 { 0 } else { self.ring_events as usize };
        if !fits {
            return None;
        }
        let strings = after(size_of::<Header>(), self.entries(), size_of::<Entry>());
        let first = after(strings, self.strings as usize, 1);
        let second = after(first, counters, size_of::<Counter>());
        let heads = after(second, histograms, size_of::<AtomicHistogram>());
        let slots = after(heads, rings, size_of::<Head>());
        let marks = after(slots, rings * events, size_of::<Slot>());
        let end = after(marks, self.marks as usize, size_of::<Name>());
        let (counters, histograms) = (first, second);
        let offsets = Offsets { strings, counters, histograms, heads, slots, marks, end };
        (end <= LARGEST).then_some(offsets)
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.counters as usize + self.histograms as usize + self.rings as usize
    }
}

/// The strings of a page, each kept once, and where the entries' are.
#[derive(Default)]
pub(crate) struct Strings<'a> {
    pub bytes: Vec<u8>,
    known: HashMap<&'a str, (u32, u32)>,
}

impl<'a> Strings<'a> {
    /// Adds `text`; returns its offset and length.
    pub fn add(&mut self, text: &'a str) -> (u32, u32) {
        let bytes = &mut self.bytes;
        *self.known.entry(text).or_insert_with(|| {
            let at = bytes.len() as u32;
            bytes.extend_from_slice(text.as_bytes());
            (at, text.len() as u32)
        })
    }
}

impl<'a> Layout<'a> {
    /// Returns the names of all entries, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a (&'a str, &'a str)> {
        self.counters.iter().chain(self.histograms).chain(self.rings)
    }

    /// Returns the shape for these names, of which there are so many bytes.
    pub(crate) fn shape(&self, strings: usize) -> io::Result<(Shape, Offsets)> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let shape = Shape {
            counters: number(self.counters.len()),
            histograms: number(self.histograms.len()),
            rings: number(self.rings.len()),
            ring_events: number(self.ring_events),
            strings: number(strings),
            marks: number(self.marks),
        };
        let message =
            || format!("a page cannot have {shape:?}; at most {MOST:?}, rings of a power of two");
        let offsets = shape.offsets();
        let offsets =
            offsets.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, message()))?;
        Ok((shape, offsets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn regions_are_in_order_aligned_and_large_enough(
            counters in 0..MOST.counters + 2, histograms in 0..MOST.histograms + 2, rings in 0..MOST.rings + 2,
            ring_events in any::<u32>(), power in 0..21u32, strings in any::<u32>(), marks in 0..MOST.marks + 2,
        ) {
            let strings = strings >> 8;
            let one = Shape { counters, histograms, rings, ring_events: 1 << power, strings, marks };
            let _ = Shape { ring_events, strings, ..one }.offsets();
            if let Some(at) = one.offsets() {
                let all = [at.strings, at.counters, at.histograms, at.heads, at.slots, at.marks, at.end];
                prop_assert!(all.is_sorted() && all.iter().all(|at| at % 128 == 0) && at.end <= LARGEST);
                prop_assert!(at.counters - at.strings >= one.strings as usize);
                prop_assert!(at.histograms - at.counters >= counters as usize * 8);
                prop_assert!(at.heads - at.histograms >= histograms as usize * 3968);
                prop_assert!(at.marks - at.slots >= (rings as usize * 32) << power);
                prop_assert!(at.end - at.marks >= marks as usize * 128);
            }
        }
    }

    #[test]
    fn too_much_is_refused() {
        let none =
            Shape { counters: 0, histograms: 0, rings: 0, ring_events: 0, strings: 0, marks: 0 };
        let shape = Shape { counters: 1, rings: 1, ring_events: 3, ..none };
        assert_eq!(shape.offsets(), None);
        assert!(Shape { ring_events: 4, ..shape }.offsets().is_some());
        assert_eq!(Shape { counters: u32::MAX, ..none }.offsets(), None);
        assert_eq!(Shape { marks: u32::MAX, ..none }.offsets(), None);
    }
}
