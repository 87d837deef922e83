//! Memory that the kernel shares: the frames themselves, and the rings.

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

// SAFETY: a mapping is not bound to the thread that made it, and the owner of this owns the mapping.
unsafe impl Send for Mapping {}
// SAFETY: what is shared is where the mapping is; code that touches its contents argues for that.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `length` bytes of zeroes. They are touched at once: the first packet should not wait for a page. Shared, for a
    /// process that forks would write to copies of private pages, and the kernel would go on with the old ones.
    pub(super) fn anonymous(length: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags) }?;
        Self::at(at.cast(), length)
    }

    /// A ring of a socket.
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
        // SAFETY: the very mapping that was made; its owner lends nothing that outlives it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
