//! An array map mapped into this process: reading and writing it takes nanoseconds and no system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Map, MapKind};

/// The mapped values of an array map. Every access is atomic, because programs in the kernel and other processes use
/// the same memory concurrently.
#[derive(Debug)]
pub struct MapView {
    base: NonNull<u8>,
    /// Bytes mapped.
    length: usize,
    /// Bytes from one value to the next.
    stride: usize,
    entries: usize,
}

// SAFETY: the mapping is shared memory that only atomics access, and it is unmapped when its only owner is dropped.
unsafe impl Send for MapView {}
// SAFETY: as above.
unsafe impl Sync for MapView {}

impl MapView {
    /// Maps all of `map`, which must be an [`MapKind::Array`] with a writable descriptor.
    pub fn new(map: &Map) -> io::Result<Self> {
        let spec = map.spec();
        if spec.kind != MapKind::Array {
            return Err(io::Error::other(format!(
                "map `{}` is not an array, so it cannot be mapped",
                spec.name
            )));
        }
        let (size, entries) = (spec.value_size as usize, spec.entries as usize);
        Self::over(map.as_fd(), size, entries, spec.read_only)
    }

    /// Maps `entries` values of `size` bytes from any memory: fuzzing maps its own file.
    #[doc(hidden)]
    pub fn over(
        memory: BorrowedFd<'_>,
        size: usize,
        entries: usize,
        read_only: bool,
    ) -> io::Result<Self> {
        let stride = size.next_multiple_of(8);
        let length = (stride * entries).next_multiple_of(4096);
        let access = match read_only {
            true => ProtFlags::READ,
            false => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at =
            unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, memory, 0)? };
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { base, length, stride, entries })
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Returns whether the map has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the `word`th 8 bytes of value `index`.
    ///
    /// # Panics
    /// If there is no such value, or no such word in it.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        // SAFETY: `offset` is inside the mapping and a multiple of eight from its start, which is a page's; the
        // mapping lives as long as `self`, and all other users of the memory use atomics or single aligned words too.
        unsafe { self.base.add(self.offset(index, word * 8, 8)).cast().as_ref() }
    }

    /// Returns the `half`th 4 bytes of value `index`.
    ///
    /// # Panics
    /// If there is no such value, or no such half in it.
    #[must_use]
    #[inline]
    pub fn half(&self, index: usize, half: usize) -> &AtomicU32 {
        // SAFETY: as in `word`, with multiples of four.
        unsafe { self.base.add(self.offset(index, half * 4, 4)).cast().as_ref() }
    }

    #[inline]
    fn offset(&self, index: usize, within: usize, size: usize) -> usize {
        assert!(index < self.entries && within + size <= self.stride, "outside the map");
        index * self.stride + within
    }
}

impl Drop for MapView {
    fn drop(&mut self) {
        // SAFETY: the mapping that `over` made; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
