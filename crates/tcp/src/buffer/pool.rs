//! Blocks of 4 KiB, shared by all connections of a stack.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// The end of a list of blocks.
pub const NONE: u32 = u32::MAX;

/// What is in a block, and which block comes after it in its chain or in the list of free blocks.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub next: u32,
    pub first: u16,
    pub end: u16,
}

impl Link {
    pub fn length(self) -> usize {
        usize::from(self.end - self.first)
    }
}

/// So many free blocks keep their memory, and as many more as are in use.
const KEPT: usize = 64;

/// The blocks. The last block freed is the next one used: its bytes are probably in a cache.
///
/// The memory of some free blocks is kept for the next use, that of others is given back.
#[derive(Debug)]
pub struct Pool {
    blocks: Vec<Box<[u8]>>,
    links: Vec<Link>,
    /// Free blocks that have memory, and how many there are.
    warm: u32,
    warm_count: usize,
    /// Free blocks without.
    cold: u32,
    used: usize,
    limit: usize,
}

impl Pool {
    /// A pool of at most `limit` bytes.
    pub fn new(limit: usize) -> Pool {
        let limit = (limit / BLOCK).min(NONE as usize - 1);
        let (blocks, links) = (Vec::new(), Vec::new());
        Pool { blocks, links, warm: NONE, warm_count: 0, cold: NONE, used: 0, limit }
    }

    /// Returns an empty block; `None` if the limit is reached.
    pub fn allocate(&mut self) -> Option<u32> {
        if self.used == self.limit {
            return None;
        }
        let block = self.take_warm().unwrap_or_else(|| self.take_cold());
        self.links[block as usize] = Link { next: NONE, first: 0, end: 0 };
        self.used += 1;
        Some(block)
    }

    fn take_warm(&mut self) -> Option<u32> {
        let block = self.warm;
        if block == NONE {
            return None;
        }
        self.warm = self.links[block as usize].next;
        self.warm_count -= 1;
        Some(block)
    }

    fn take_cold(&mut self) -> u32 {
        let memory = Box::new([0; BLOCK]);
        let block = self.cold;
        if block == NONE {
            self.blocks.push(memory);
            self.links.push(Link { next: NONE, first: 0, end: 0 });
            return self.blocks.len() as u32 - 1;
        }
        self.cold = self.links[block as usize].next;
        self.blocks[block as usize] = memory;
        block
    }

    /// Takes a block back.
    pub fn free(&mut self, block: u32) {
        self.used -= 1;
        self.links[block as usize].next = self.warm;
        (self.warm, self.warm_count) = (block, self.warm_count + 1);
        // Two for each that comes, so the memory of a peak goes away with it.
        for _ in 0..2 {
            if self.warm_count > self.used + KEPT {
                self.cool();
            }
        }
    }

    /// Gives the memory of a free block back.
    fn cool(&mut self) {
        let Some(block) = self.take_warm() else { return };
        self.blocks[block as usize] = Box::default();
        self.links[block as usize].next = self.cold;
        self.cold = block;
    }

    pub fn link(&self, block: u32) -> Link {
        self.links[block as usize]
    }

    pub fn link_mut(&mut self, block: u32) -> &mut Link {
        &mut self.links[block as usize]
    }

    /// The bytes in `block` that are in use.
    pub fn bytes(&self, block: u32) -> &[u8] {
        let link = self.link(block);
        &self.blocks[block as usize][usize::from(link.first)..usize::from(link.end)]
    }

    /// Appends as much of `bytes` to `block` as fits; returns how much.
    pub fn append(&mut self, block: u32, bytes: &[u8]) -> usize {
        let link = &mut self.links[block as usize];
        let end = usize::from(link.end);
        let length = bytes.len().min(BLOCK - end);
        self.blocks[block as usize][end..end + length].copy_from_slice(&bytes[..length]);
        link.end = (end + length) as u16;
        length
    }

    /// Bytes of the blocks in use.
    pub fn used_bytes(&self) -> usize {
        self.used * BLOCK
    }

    /// Whether a block can be had.
    pub fn has_room(&self) -> bool {
        self.used < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_peak_is_given_back() {
        let mut pool = Pool::new(1 << 24);
        let blocks: Vec<u32> = (0..1000).map(|_| pool.allocate().unwrap()).collect();
        blocks.into_iter().for_each(|block| pool.free(block));
        let memory = |pool: &Pool| pool.blocks.iter().filter(|bytes| !bytes.is_empty()).count();
        assert_eq!((pool.used_bytes(), memory(&pool)), (0, KEPT));
        let block = pool.allocate().unwrap();
        assert_eq!(
            (pool.append(block, &[7; 2 * BLOCK]), pool.bytes(block)),
            (BLOCK, &[7; BLOCK][..])
        );
        assert_eq!(memory(&pool), KEPT, "a block with memory comes first");
    }
}
