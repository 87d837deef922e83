//! The state shared by the sockets of a queue: the memory, the fill ring and the completion ring.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::sockopt;
use rustix::net::xdp::{
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};

use super::frames::{Account, Layout};
use super::memory::Mapping;
use super::ring::Ring;

/// The frames of a queue.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) layout: Layout,
    pub(super) memory: Mapping,
    /// Locked once per batch of frames, not per frame.
    pool: Mutex<Pool>,
}

/// The frames and rings that the queue's sockets use in turn.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) account: Account,
    fill: Ring<u64>,
    completion: Ring<u64>,
    /// Number of addresses from the kernel that are outside the memory.
    invalid: u64,
}

impl Shared {
    /// Registers memory of this `layout` with the first socket of a queue, and gives the kernel frames to fill.
    pub(super) fn register(fd: &OwnedFd, layout: Layout) -> io::Result<Self> {
        let memory = Mapping::anonymous(layout.bytes())?;
        let area = XdpUmemReg {
            addr: memory.base().as_ptr().expose_provenance() as u64,
            len: memory.length() as u64,
            chunk_size: layout.size,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(fd, area)?;
        // I2: the kernel passes frames on before it returns their entries of the fill ring (`xsk_flush`). So half of
        // all frames may be in the ring for the second time while the kernel still holds their old entries.
        let fill_entries = (layout.half * 2).next_power_of_two();
        let completion_entries = layout.half.next_power_of_two();
        sockopt::set_xdp_umem_fill_ring_size(fd, fill_entries)?;
        sockopt::set_xdp_umem_completion_ring_size(fd, completion_entries)?;
        let at: XdpMmapOffsets = sockopt::xdp_mmap_offsets(fd)?;
        let mut pool = Pool {
            account: Account::new(layout),
            fill: ring(fd, &at.fr, XDP_UMEM_PGOFF_FILL_RING, fill_entries)?,
            completion: ring(fd, &at.cr, XDP_UMEM_PGOFF_COMPLETION_RING, completion_entries)?,
            invalid: 0,
        };
        pool.refill();
        Ok(Self { layout, memory, pool: Mutex::new(pool) })
    }

    /// Locks the pool. Callers' functions never run under this lock, so poison does not matter.
    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Frees the frames that were sent.
    pub(super) fn reap(&mut self, layout: Layout) {
        while let Some(address) = self.completion.pop() {
            match layout.frame_of(address, 0) {
                Some(start) => self.account.sent(start),
                None => self.invalid += 1,
            }
        }
        self.completion.release();
    }

    /// Gives the kernel empty frames.
    pub(super) fn refill(&mut self) {
        while let Some(frame) = self.account.next_to_fill() {
            let pushed = self.fill.push(frame);
            debug_assert!(pushed, "I2: the fill ring has room for each frame that may be filled");
        }
        self.fill.publish();
    }

    /// Returns whether the kernel must be notified of empty frames.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    pub(super) fn invalid(&self) -> u64 {
        self.invalid
    }
}

/// Maps a ring of a socket.
pub(super) fn ring<T: Copy>(
    fd: &OwnedFd,
    offsets: &XdpRingOffset,
    place: u64,
    size: u32,
) -> io::Result<Ring<T>> {
    let memory = Mapping::of_socket(fd.as_fd(), place, Ring::<T>::bytes(offsets, size))?;
    Ring::new(memory, offsets, size)
}
