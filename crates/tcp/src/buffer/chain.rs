//! A queue of bytes in blocks.

use super::pool::{NONE, Pool};

/// Bytes in order, over several blocks. It does not own the pool, so it must be cleared before it is dropped.
#[derive(Debug)]
pub struct Chain {
    head: u32,
    tail: u32,
    length: u32,
}

/// The block of the last read at an offset, and the offset of its first byte. The next such read starts there if its
/// offset is not before it: a sender reads onwards.
#[derive(Debug)]
pub struct Cursor {
    block: u32,
    start: u32,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { block: NONE, start: 0 }
    }
}

impl Cursor {
    /// The first `count` bytes of the chain are dropped.
    pub fn advance(&mut self, count: u32) {
        if self.start >= count && self.block != NONE {
            self.start -= count;
        } else {
            // The block may be freed, or lose its beginning.
            *self = Cursor::default();
        }
    }
}

impl Chain {
    pub const fn new() -> Chain {
        Chain { head: NONE, tail: NONE, length: 0 }
    }

    /// How many bytes there are.
    pub fn len(&self) -> u32 {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends as much of `bytes` as the pool has room for; returns how much.
    pub fn push(&mut self, pool: &mut Pool, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        if self.tail != NONE {
            rest = &rest[pool.append(self.tail, rest)..];
        }
        while !rest.is_empty() {
            let Some(block) = pool.allocate() else { break };
            self.attach(pool, block);
            rest = &rest[pool.append(block, rest)..];
        }
        let pushed = bytes.len() - rest.len();
        self.length += pushed as u32;
        pushed
    }

    fn attach(&mut self, pool: &mut Pool, block: u32) {
        match self.tail {
            NONE => self.head = block,
            tail => pool.link_mut(tail).next = block,
        }
        self.tail = block;
    }

    /// Moves all bytes of `other` to the end. No byte is copied.
    pub fn splice(&mut self, pool: &mut Pool, other: &mut Chain) {
        let other = core::mem::replace(other, Chain::new());
        if other.is_empty() {
            return;
        }
        self.attach(pool, other.head);
        self.tail = other.tail;
        self.length += other.length;
    }

    /// Drops the first `count` bytes, or all if there are fewer.
    pub fn advance(&mut self, pool: &mut Pool, count: u32) {
        let mut rest = count.min(self.length);
        self.length -= rest;
        while rest > 0 {
            let head = self.head;
            let link = pool.link_mut(head);
            let step = (link.length() as u32).min(rest);
            link.first += step as u16;
            rest -= step;
            let (is_used_up, next) = (link.length() == 0, link.next);
            if is_used_up {
                self.head = next;
                pool.free(head);
            }
        }
        if self.length == 0 {
            *self = Chain::new();
        }
    }

    /// Copies from the front into `to` and drops what was copied; returns how much.
    pub fn read(&mut self, pool: &mut Pool, to: &mut [u8]) -> usize {
        let length = to.len().min(self.length as usize);
        self.copy_to(pool, &mut to[..length]);
        self.advance(pool, length as u32);
        length
    }

    /// Copies from the front into `to`, which is not longer than this.
    pub fn copy_to(&self, pool: &Pool, to: &mut [u8]) {
        let (mut rest, mut block) = (to, self.head);
        while !rest.is_empty() {
            let bytes = pool.bytes(block);
            let length = bytes.len().min(rest.len());
            let (here, tail) = rest.split_at_mut(length);
            here.copy_from_slice(&bytes[..length]);
            (rest, block) = (tail, pool.link(block).next);
        }
    }

    /// Calls `visit` with the pieces of `length` bytes from `offset`.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn visit(
        &self,
        pool: &Pool,
        cursor: &mut Cursor,
        offset: u32,
        length: u32,
        mut visit: impl FnMut(&[u8]),
    ) {
        assert!(offset + length <= self.length, "read beyond the end of a buffer");
        if length == 0 {
            return;
        }
        self.seek(pool, cursor, offset);
        let Cursor { mut block, start } = *cursor;
        let (mut skip, mut rest) = ((offset - start) as usize, length as usize);
        while rest > 0 {
            let bytes = &pool.bytes(block)[skip..];
            let piece = &bytes[..bytes.len().min(rest)];
            visit(piece);
            (rest, skip, block) = (rest - piece.len(), 0, pool.link(block).next);
        }
    }

    /// Moves the cursor to the block in which the byte at `offset` is.
    fn seek(&self, pool: &Pool, cursor: &mut Cursor, offset: u32) {
        let Cursor { mut block, mut start } = *cursor;
        if block == NONE || start > offset {
            (block, start) = (self.head, 0);
        }
        loop {
            let link = pool.link(block);
            if offset < start + link.length() as u32 {
                break;
            }
            (start, block) = (start + link.length() as u32, link.next);
        }
        *cursor = Cursor { block, start };
    }

    /// Drops all bytes.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.advance(pool, self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::BLOCK;
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Read(usize),
        Visit(u32, u32),
        Splice(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let size = 0..3 * BLOCK;
        prop_oneof![
            size.clone().prop_map(Step::Push),
            size.clone().prop_map(Step::Read),
            (any::<u32>(), any::<u32>()).prop_map(|(offset, length)| Step::Visit(offset, length)),
            size.prop_map(Step::Splice),
        ]
    }

    fn bytes(count: usize, seed: usize) -> Vec<u8> {
        (0..count).map(|i| ((i + seed) * 31 % 251) as u8).collect()
    }

    proptest! {
        /// I1: a byte is in one place, and a chain is a queue of bytes.
        #[test]
        fn a_chain_is_a_queue(steps in proptest::collection::vec(step(), 0..40)) {
            let (mut pool, mut chain, mut model) = (Pool::new(1 << 20), Chain::new(), Vec::<u8>::new());
            let mut cursor = Cursor::default();
            for (seed, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(count) => {
                        let bytes = bytes(count, seed);
                        let pushed = chain.push(&mut pool, &bytes);
                        model.extend(&bytes[..pushed]);
                    }
                    Step::Read(count) => {
                        let mut to = vec![0; count];
                        let read = chain.read(&mut pool, &mut to);
                        cursor.advance(read as u32);
                        prop_assert_eq!(read, count.min(model.len()));
                        let front: Vec<u8> = model.drain(..read).collect();
                        prop_assert_eq!(&to[..read], &front[..]);
                    }
                    Step::Visit(offset, length) => {
                        let offset = offset % (chain.len() + 1);
                        let length = length % (chain.len() - offset + 1);
                        let mut seen: Vec<u8> = Vec::new();
                        chain.visit(&pool, &mut cursor, offset, length, |piece| seen.extend(piece));
                        prop_assert_eq!(&seen[..], &model[offset as usize..(offset + length) as usize]);
                    }
                    Step::Splice(count) => {
                        let (bytes, mut other) = (bytes(count, seed), Chain::new());
                        let pushed = other.push(&mut pool, &bytes);
                        chain.splice(&mut pool, &mut other);
                        model.extend(&bytes[..pushed]);
                    }
                }
                prop_assert_eq!(chain.len() as usize, model.len());
            }
            chain.clear(&mut pool);
            prop_assert_eq!(pool.used_bytes(), 0);
        }
    }

    #[test]
    fn a_full_pool_takes_no_more() {
        let (mut pool, mut chain) = (Pool::new(2 * BLOCK), Chain::new());
        assert_eq!(chain.push(&mut pool, &vec![1; 3 * BLOCK]), 2 * BLOCK);
        assert!(!pool.has_room());
        chain.clear(&mut pool);
        assert!(pool.has_room());
    }
}
