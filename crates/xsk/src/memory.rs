//! Memory shared with the kernel: the frames and the rings.

use std::io;
use std::ptr::NonNull;

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A mapping, unmapped when it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is not bound to the thread that made it, and this value owns it.
unsafe impl Send for Mapping {}
// SAFETY: sharing this shares only the mapping's location; code that accesses the contents justifies that itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` zero bytes. They are populated at once, so that the first packet does not wait for a page fault.
    /// The mapping is shared: after a fork, the process would write to copies of private pages, and the kernel would
    /// use the old ones.
    pub(super) fn anonymous(length: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags) }?;
        Self::at(at.cast(), length)
    }

    /// Maps a ring of a socket.
    pub(super) fn of_socket(
        socket: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        let at = unsafe { mmap(std::ptr::null_mut(), length, access, flags, socket, offset) }?;
        Self::at(at.cast(), length)
    }

    fn at(at: *mut u8, length: usize) -> io::Result<Self> {
        let base = NonNull::new(at).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { base, length })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; its owner lends nothing that outlives it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
