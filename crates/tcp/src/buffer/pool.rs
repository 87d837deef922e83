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

/// The blocks. The last block freed is the next one used: its bytes are probably in a cache.
///
/// Memory of blocks is kept for the next use, up to the limit.
#[derive(Debug)]
pub struct Pool {
    blocks: Vec<Box<[u8; BLOCK]>>,
    links: Vec<Link>,
    free: u32,
    used: usize,
    limit: usize,
}

impl Pool {
    /// A pool of at most `limit` bytes.
    pub fn new(limit: usize) -> Pool {
        let limit = (limit / BLOCK).min(NONE as usize - 1);
        Pool { blocks: Vec::new(), links: Vec::new(), free: NONE, used: 0, limit }
    }

    /// Returns an empty block; `None` if the limit is reached.
    pub fn allocate(&mut self) -> Option<u32> {
        let empty = Link { next: NONE, first: 0, end: 0 };
        if self.free == NONE {
            return self.add(empty);
        }
        let block = self.free;
        self.free = self.links[block as usize].next;
        self.links[block as usize] = empty;
        self.used += 1;
        Some(block)
    }

    fn add(&mut self, link: Link) -> Option<u32> {
        if self.blocks.len() == self.limit {
            return None;
        }
        self.blocks.push(Box::new([0; BLOCK]));
        self.links.push(link);
        self.used += 1;
        Some(self.blocks.len() as u32 - 1)
    }

    /// Takes a block back.
    pub fn free(&mut self, block: u32) {
        self.links[block as usize].next = self.free;
        self.free = block;
        self.used -= 1;
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
