//! Data beyond a gap, in ranges that neither touch nor overlap (RFC 2018, section 4).

use crate::buffer::{Chain, Pool};
use crate::seq::Seq;
use crate::wire::SackBlocks;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes `[start, end)` of the stream.
#[derive(Debug)]
struct Range {
    start: Seq,
    end: Seq,
    /// When it was last added to, in segments: SACK names the latest range first.
    latest: u32,
    bytes: Chain,
}

/// Why data was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many bytes or ranges as allowed.
    Limit,
    /// No block is free.
    Memory,
}

/// How much may be kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: u32,
    pub ranges: u8,
}

/// The data beyond gaps. Without any it has no memory.
#[derive(Debug)]
pub struct Reassembly(Option<Box<Ranges>>);

/// The ranges in the order of their numbers, and how many segments were added to them.
#[derive(Debug, Default)]
struct Ranges {
    ranges: Vec<Range>,
    segments: u32,
}

impl Reassembly {
    pub const fn new() -> Reassembly {
        Reassembly(None)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u32 {
        self.0.as_ref().map_or(0, |ranges| ranges.bytes())
    }

    /// Whether all of `[start, end)` is there.
    pub fn covers(&self, start: Seq, end: Seq) -> bool {
        self.0.as_ref().is_some_and(|ranges| ranges.covers(start, end))
    }

    /// Adds `bytes`, which begin at `start`. Of what is there already, the first arrival stays.
    ///
    /// # Errors
    /// [`Refusal`] if not all of it was taken.
    pub fn insert(
        &mut self,
        pool: &mut Pool,
        start: Seq,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<(), Refusal> {
        let result = self.0.get_or_insert_default().insert(pool, start, bytes, limits);
        self.0.take_if(|ranges| ranges.ranges.is_empty());
        result
    }

    /// Moves what continues the stream at `next` to `stream`; returns how many bytes.
    pub fn take(&mut self, pool: &mut Pool, next: Seq, stream: &mut Chain) -> u32 {
        let taken = self.0.as_mut().map_or(0, |ranges| ranges.take(pool, next, stream));
        self.0.take_if(|ranges| ranges.ranges.is_empty());
        taken
    }

    /// The ranges as SACK blocks, the latest first, at most `most` (RFC 2018, section 4).
    pub fn blocks(&self, most: usize, blocks: &mut SackBlocks) {
        if let Some(ranges) = &self.0 {
            ranges.blocks(most, blocks);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self, pool: &mut Pool) {
        if let Some(mut ranges) = self.0.take() {
            ranges.ranges.iter_mut().for_each(|range| range.bytes.clear(pool));
        }
    }
}

impl Ranges {
    fn bytes(&self) -> u32 {
        self.ranges.iter().map(|range| range.bytes.len()).sum()
    }

    fn covers(&self, start: Seq, end: Seq) -> bool {
        let covers = |range: &Range| !start.is_before(range.start) && !end.is_after(range.end);
        self.ranges.iter().any(covers)
    }

    fn insert(
        &mut self,
        pool: &mut Pool,
        start: Seq,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<(), Refusal> {
        if self.bytes() as usize + bytes.len() > limits.bytes as usize {
            return Err(Refusal::Limit);
        }
        self.segments = self.segments.wrapping_add(1);
        let (mut start, mut bytes) = (start, bytes);
        while !bytes.is_empty() {
            // The first range that ends at or after the start: it takes the bytes, or limits them.
            let index = self.ranges.partition_point(|range| range.end.is_before(start));
            let taken = self.insert_at(pool, index, start, bytes, limits)?;
            start += taken as u32;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Puts the beginning of `bytes` where it belongs: into the range `index` or before it. Returns how much is done.
    fn insert_at(
        &mut self,
        pool: &mut Pool,
        index: usize,
        start: Seq,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<usize, Refusal> {
        let latest = self.segments;
        let length_before = |next: Option<&Range>| match next {
            Some(next) => ((next.start - start) as usize).min(bytes.len()),
            None => bytes.len(),
        };
        match self.ranges.get(index) {
            Some(range) if !range.start.is_after(start) && range.end != start => {
                self.ranges[index].latest = latest;
                Ok(((range_end(&self.ranges[index]) - start) as usize).min(bytes.len()))
            }
            Some(range) if range.end == start => {
                let length = length_before(self.ranges.get(index + 1));
                self.extend(pool, index, &bytes[..length])?;
                Ok(length)
            }
            next => {
                let length = length_before(next);
                if self.ranges.len() >= usize::from(limits.ranges) {
                    return Err(Refusal::Limit);
                }
                self.ranges.insert(index, Range { start, end: start, latest, bytes: Chain::new() });
                self.extend(pool, index, &bytes[..length])?;
                Ok(length)
            }
        }
    }

    /// Appends to the range `index`, and joins it with the next if they touch now.
    fn extend(&mut self, pool: &mut Pool, index: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let range = &mut self.ranges[index];
        let pushed = range.bytes.push(pool, bytes);
        range.end += pushed as u32;
        range.latest = self.segments;
        if range.start == range.end {
            self.ranges.remove(index);
            return Err(Refusal::Memory);
        }
        if pushed < bytes.len() {
            return Err(Refusal::Memory);
        }
        self.join(pool, index);
        Ok(())
    }

    fn join(&mut self, pool: &mut Pool, index: usize) {
        let end = self.ranges[index].end;
        if self.ranges.get(index + 1).is_some_and(|next| next.start == end) {
            let mut next = self.ranges.remove(index + 1);
            self.ranges[index].end = next.end;
            self.ranges[index].bytes.splice(pool, &mut next.bytes);
        }
    }

    fn take(&mut self, pool: &mut Pool, next: Seq, stream: &mut Chain) -> u32 {
        let mut taken = 0;
        while self.ranges.first().is_some_and(|first| !first.start.is_after(next + taken)) {
            let mut range = self.ranges.remove(0);
            let known = (next + taken - range.start).min(range.bytes.len());
            range.bytes.advance(pool, known);
            taken += range.bytes.len();
            stream.splice(pool, &mut range.bytes);
        }
        taken
    }

    fn blocks(&self, most: usize, blocks: &mut SackBlocks) {
        let mut before = None;
        while blocks.as_slice().len() < most {
            let age = |range: &Range| self.segments.wrapping_sub(range.latest);
            let older = self.ranges.iter().enumerate().map(|(i, range)| (age(range), i));
            let Some(next) = older.filter(|&key| before.is_none_or(|before| key > before)).min()
            else {
                break;
            };
            blocks.push((self.ranges[next.1].start, self.ranges[next.1].end));
            before = Some(next);
        }
    }
}

fn range_end(range: &Range) -> Seq {
    range.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bytes: 1 << 16, ranges: 8 };

    fn blocks(reassembly: &Reassembly, most: usize) -> Vec<(u32, u32)> {
        let mut blocks = SackBlocks::default();
        reassembly.blocks(most, &mut blocks);
        blocks.as_slice().iter().map(|(start, end)| (start.0, end.0)).collect()
    }

    #[test]
    fn the_latest_range_is_named_first() {
        let (mut pool, mut reassembly) = (Pool::new(1 << 20), Reassembly::new());
        for start in [100, 300, 200, 310] {
            reassembly.insert(&mut pool, Seq(start), &[0; 10], LIMITS).unwrap();
        }
        assert_eq!(blocks(&reassembly, 4), [(300, 320), (200, 210), (100, 110)]);
        assert_eq!(blocks(&reassembly, 2).len(), 2);
        reassembly.clear(&mut pool);
    }

    #[test]
    fn limits_hold() {
        let (mut pool, mut reassembly) = (Pool::new(1 << 20), Reassembly::new());
        let limits = Limits { bytes: 25, ranges: 2 };
        let mut insert =
            |start, length| reassembly.insert(&mut pool, Seq(start), &[0; 30][..length], limits);
        assert_eq!((insert(10, 5), insert(20, 5)), (Ok(()), Ok(())));
        assert_eq!(insert(30, 5), Err(Refusal::Limit), "a third range");
        assert_eq!(insert(25, 16), Err(Refusal::Limit), "26 bytes");
        assert_eq!(insert(25, 15), Ok(()));
        reassembly.clear(&mut pool);
        assert_eq!(pool.used_bytes(), 0);
    }

    proptest! {
        /// I1: each byte of the stream is in one place, whatever the order of arrival.
        #[test]
        fn any_order_gives_the_stream(
            pieces in proptest::collection::vec((0u32..500, 1usize..80), 1..40),
            first: u32,
        ) {
            let byte = |at: u32| (at * 7 % 251) as u8;
            let (mut pool, mut reassembly) = (Pool::new(1 << 20), Reassembly::new());
            let mut there = [false; 600];
            for (start, length) in pieces {
                let bytes: Vec<u8> = (start..start + length as u32).map(byte).collect();
                if reassembly.insert(&mut pool, Seq(first) + start, &bytes, Limits { ranges: 255, ..LIMITS }).is_ok() {
                    there[start as usize..start as usize + length].fill(true);
                }
            }
            prop_assert_eq!(reassembly.bytes() as usize, there.iter().filter(|&&there| there).count());
            let (mut stream, mut next) = (Chain::new(), 0u32);
            while next < 600 {
                // The gap arrives, byte by byte.
                let taken = reassembly.take(&mut pool, Seq(first) + next, &mut stream);
                let run = there[next as usize..].iter().take_while(|&&there| there).count() as u32;
                prop_assert_eq!(taken, run);
                next += taken;
                if next < 600 {
                    stream.push(&mut pool, &[byte(next)]);
                    next += 1;
                }
            }
            prop_assert!(reassembly.is_empty());
            let mut bytes = alloc::vec![0; 600];
            prop_assert_eq!(stream.read(&mut pool, &mut bytes), 600);
            prop_assert!(bytes.iter().enumerate().all(|(at, &b)| b == byte(at as u32)));
            prop_assert_eq!(pool.used_bytes(), 0);
        }
    }
}
