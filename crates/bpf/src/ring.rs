//! BPF ring buffers, mapped into this process: checking an empty ring costs nanoseconds and no system call.
//!
//! The kernel's side (`kernel/bpf/ringbuf.c`) reserves a record by advancing the producer's position, with the record's
//! header marked busy, and clears the mark with release order once the record is complete. This side reads the
//! producer's position and the header with acquire order, copies the record, and advances the consumer's position.
//!
//! - **I1** Any number of threads may read at once, and each record goes to one of them: the consumer's position is
//!   advanced by compare-and-swap after the copy. A reader whose copy the kernel may have overwritten meanwhile loses
//!   that exchange and discards the copy. Positions have 64 bits and never repeat.
//! - **I2** Records are copied by atomic loads, so even a copy that is discarded is not a data race.
//! - **I3** A reader that has taken the last record and then finds the ring empty is woken by the next record: the
//!   kernel completes a record and then reads the consumer's position; this side advances that position and then looks
//!   for a record. Both have a full barrier in between, so one of them sees the other's write.
//! - **I4** If another process writes the consumer's position, records are lost, and nothing worse: reading continues
//!   with the records that follow.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Map, MapKind};

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes of a record's header.
const HEADER: usize = 8;

/// The reader of a ring buffer.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    records: Records,
}

impl Ring {
    /// Maps `map`, which must be a [`MapKind::RingBuffer`].
    ///
    /// # Errors
    /// Fails for other kinds of maps; else the kernel's errors: `EPERM` if the descriptor is not writable.
    pub fn new(map: Map) -> io::Result<Ring> {
        if map.spec().kind != MapKind::RingBuffer {
            let text = format!("map `{}` is not a ring buffer", map.spec().name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let records = Records::new(map.as_fd(), map.spec().entries as usize)?;
        Ok(Ring { map, records })
    }

    /// Returns whether there is nothing to read, not even a record that is being written.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of bytes written and not read, headers included.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        self.records.backlog()
    }

    /// Takes the oldest record, as words of eight bytes: truncated to `N` words, or padded with zeros. `None` if there
    /// is no record, or if the oldest is not complete yet.
    #[inline]
    pub fn next<const N: usize>(&self) -> Option<[u64; N]> {
        self.records.next()
    }

    /// Returns the map that this reads.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }
}

/// The descriptor is readable while the ring is not empty, but only records sent with a wakeup wake a sleeping reader.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// The memory of a ring buffer, from any file: fuzzing maps its own.
#[doc(hidden)]
#[derive(Debug)]
pub struct Records {
    /// The consumer's position, in a page that this side writes.
    consumer: Mapping,
    /// The producer's position in the first page, then the data, mapped twice in a row so that no record wraps.
    producer: Mapping,
    size: usize,
}

impl Records {
    /// Maps the memory of a ring buffer of `size` bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(memory: BorrowedFd<'_>, size: usize) -> io::Result<Records> {
        let page = page_size();
        let consumer = Mapping::new(memory, 0, page, ProtFlags::READ | ProtFlags::WRITE)?;
        let producer = Mapping::new(memory, page, page + 2 * size, ProtFlags::READ)?;
        Ok(Records { consumer, producer, size })
    }

    /// See [`Ring::is_empty`].
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.consumer.word(0).load(SeqCst) == self.producer.word(0).load(SeqCst)
    }

    /// See [`Ring::backlog`].
    #[must_use]
    pub fn backlog(&self) -> u64 {
        let at = self.consumer.word(0).load(Acquire);
        self.producer.word(0).load(Acquire).saturating_sub(at)
    }

    /// See [`Ring::next`].
    #[inline]
    pub fn next<const N: usize>(&self) -> Option<[u64; N]> {
        loop {
            let at = self.consumer.word(0).load(Acquire);
            let end = self.producer.word(0).load(Acquire);
            if at == end {
                return None;
            }
            if end.wrapping_sub(at) > self.size as u64 || !at.is_multiple_of(8) {
                // The kernel writes only what fits, so no reader left this position: a process that shares the map
                // wrote it. Continue with the records that follow. (If the exchange fails, another reader has advanced
                // the position since.)
                let _ = self.consumer.word(0).compare_exchange(at, end, SeqCst, Relaxed);
                continue;
            }
            let offset = page_size() + at as usize % self.size;
            let header = self.producer.half(offset).load(Acquire);
            // A reader that was overtaken may see anything here. Its exchange will fail, but it must not loop forever.
            if header & BUSY != 0 {
                if self.consumer.word(0).load(Acquire) == at {
                    return None;
                }
                continue;
            }
            let length = ((header & !DISCARDED) as usize).min(self.size);
            let record = self.copy(offset + HEADER, length);
            let after = at.wrapping_add((length + HEADER).next_multiple_of(8) as u64);
            let won = self.consumer.word(0).compare_exchange(at, after, SeqCst, Relaxed).is_ok();
            if won && header & DISCARDED == 0 {
                return Some(record);
            }
        }
    }

    #[inline]
    fn copy<const N: usize>(&self, from: usize, length: usize) -> [u64; N] {
        let mut record = [0; N];
        for (index, word) in record.iter_mut().enumerate().take(length / 8) {
            *word = self.producer.word(from + index * 8).load(Relaxed);
        }
        if let (rest @ 1.., Some(last)) = (length % 8, record.get_mut(length / 8)) {
            let word = self.producer.word(from + length / 8 * 8).load(Relaxed);
            *last = word & (u64::MAX >> (64 - 8 * rest));
        }
        record
    }
}

fn page_size() -> usize {
    // Heddle's targets have pages of 4 KiB; with another size, `Mapping::new` fails.
    heddle_sys::memory::PAGE
}

/// A part of the map's memory.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: shared memory that only atomics access, unmapped when its only owner is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(
        memory: BorrowedFd<'_>,
        offset: usize,
        length: usize,
        access: ProtFlags,
    ) -> io::Result<Mapping> {
        let (null, offset) = (std::ptr::null_mut(), offset as u64);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { mmap(null, length, access, MapFlags::SHARED, memory, offset)? };
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Mapping { base, length })
    }

    /// Returns the 8 bytes at `offset`, a multiple of eight, as for positions and records.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length, "outside the ring");
        // SAFETY: inside the mapping and aligned, as just checked; it lives as long as `self`. The access is atomic,
        // as are the kernel's, and a read-only mapping is only read.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// Returns the 4 bytes at `offset`, a multiple of four.
    #[inline]
    fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length, "outside the ring");
        // SAFETY: as in `word`.
        unsafe { self.base.add(offset).cast().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
