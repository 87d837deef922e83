//! One side of a ring shared with the kernel.
//!
//! Both counters run freely and wrap at 2^32; entry `n` is at `n` modulo the ring's size, a power of two. The producer
//! writes entries and then publishes its counter (release). The consumer reads that counter (acquire), then the
//! entries, and then publishes its own counter. So an entry is never written while the other side may read it. Each
//! side caches the other's counter, and reads it again only if it must.

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::XdpRingOffset;

use super::memory::Mapping;

/// A ring of `T`, as seen by one side.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: Arc<Mapping>,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    size: u32,
    /// This side's counter: entries written or read, published or not.
    mine: u32,
    /// The other side's counter, as last read.
    theirs: u32,
    kind: PhantomData<T>,
}

/// Flag: the kernel asks to be woken.
const NEED_WAKEUP: u32 = 1;

impl<T: Copy> Ring<T> {
    /// Returns the size in bytes of a ring of `size` entries at `offsets`.
    pub(super) fn bytes(offsets: &XdpRingOffset, size: u32) -> usize {
        offset(offsets.desc) + size as usize * size_of::<T>()
    }

    /// Returns the ring of `size` entries in `memory`, at `offsets`.
    pub(super) fn new(memory: Mapping, offsets: &XdpRingOffset, size: u32) -> io::Result<Self> {
        let (producer, consumer) = (offset(offsets.producer), offset(offsets.consumer));
        let (flags, entries) = (offsets.flags.map(offset), offset(offsets.desc));
        let counters = [Some(producer), Some(consumer), flags];
        let fits = |at: usize| at.is_multiple_of(4) && at.saturating_add(4) <= memory.length();
        let fit = counters.into_iter().flatten().all(fits)
            && entries.is_multiple_of(align_of::<T>())
            && Self::bytes(offsets, size) <= memory.length();
        if !size.is_power_of_two() || !fit {
            return Err(io::Error::other("the ring does not fit its memory"));
        }
        let kind = PhantomData;
        let memory = Arc::new(memory);
        let mut ring =
            Self { memory, producer, consumer, flags, entries, size, mine: 0, theirs: 0, kind };
        ring.mine = ring.counter(producer).load(Ordering::Relaxed);
        ring.theirs = ring.mine;
        Ok(ring)
    }

    /// As consumer: returns a view that tells any thread whether entries wait.
    pub(super) fn pending(&self) -> Pending {
        let (producer, consumer) = (self.producer, self.consumer);
        Pending { memory: Arc::clone(&self.memory), producer, consumer }
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that `at` is aligned and inside the mapping.
        unsafe { word(&self.memory, at) }
    }

    fn entry(&self, number: u32) -> NonNull<T> {
        let index = (number & (self.size - 1)) as usize;
        // SAFETY: `index` is below the size, and `new` has checked that all entries are inside the mapping.
        unsafe { self.memory.base().add(self.entries).cast::<T>().add(index) }
    }

    /// As producer: returns a lower bound of the entries that can be written now, up to date if it is below `wanted`.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &Self| ring.size - ring.mine.wrapping_sub(ring.theirs);
        if room(self) < wanted {
            self.theirs = self.counter(self.consumer).load(Ordering::Acquire);
        }
        room(self)
    }

    /// As producer: writes an entry, to be published. Returns false if the ring is full.
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the entry is ours to write: the consumer's counter, read with acquire, is less than a ring's size
        // behind, so the consumer has read the old value; it does not read this entry before `publish`.
        unsafe { self.entry(self.mine).write(value) };
        self.mine = self.mine.wrapping_add(1);
        true
    }

    /// As producer: makes the pushed entries visible to the consumer. Returns their number.
    pub(super) fn publish(&self) -> u32 {
        let producer = self.counter(self.producer);
        // Only this side writes it.
        let before = producer.load(Ordering::Relaxed);
        producer.store(self.mine, Ordering::Release);
        self.mine.wrapping_sub(before)
    }

    /// As producer: returns whether the consumer has read all entries.
    pub(super) fn is_drained(&self) -> bool {
        self.counter(self.consumer).load(Ordering::Acquire) == self.mine
    }

    /// As consumer: returns a lower bound of the entries that can be read now; 0 only if there is none.
    pub(super) fn waiting(&mut self) -> u32 {
        if self.theirs == self.mine {
            self.theirs = self.counter(self.producer).load(Ordering::Acquire);
        }
        self.theirs.wrapping_sub(self.mine)
    }

    /// As consumer: reads an entry, to be released.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.waiting() == 0 {
            return None;
        }
        // SAFETY: the producer's counter, read with acquire, is ahead of this entry, so it is written, and the producer
        // does not write it again before `release`. Every bit pattern is a valid entry.
        let value = unsafe { self.entry(self.mine).read() };
        self.mine = self.mine.wrapping_add(1);
        Some(value)
    }

    /// As consumer: returns the popped entries to the producer.
    pub(super) fn release(&self) {
        self.counter(self.consumer).store(self.mine, Ordering::Release);
    }

    /// Returns whether the kernel asks to be woken. Kernels without this flag (before 5.4) are always woken.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.flags.is_none_or(|at| self.counter(at).load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }
}

/// Tells whether frames wait in the receive ring of an [`XdpSocket`](crate::XdpSocket): two loads of shared memory, no
/// lock and no system call, from any thread. It may outlive the socket, and then says what was last true.
#[derive(Clone, Debug)]
pub struct Pending {
    memory: Arc<Mapping>,
    producer: usize,
    consumer: usize,
}

impl Pending {
    /// Returns whether frames wait that the socket's owner has not taken.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // SAFETY: the offsets are those of a ring, which has checked them against this mapping.
        let count = |at| unsafe { word(&self.memory, at) }.load(Ordering::Relaxed);
        count(self.producer) != count(self.consumer)
    }
}

/// Returns the word at `at`, which the kernel uses as an atomic word, too.
///
/// # Safety
/// `at` is a multiple of 4 and four bytes from it on are inside the mapping.
#[inline]
unsafe fn word(memory: &Mapping, at: usize) -> &AtomicU32 {
    // SAFETY: by the caller's promise; the mapping lives as long as the result.
    unsafe { memory.base().add(at).cast().as_ref() }
}

fn offset(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: XdpRingOffset =
        XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(8) };

    /// Both sides of a ring, with their counters at `start`. Each has its own memory; [`Pair::share`] copies it.
    struct Pair {
        producer: Ring<u64>,
        consumer: Ring<u64>,
    }

    impl Pair {
        fn new(size: u32, start: u32) -> Self {
            let length = Ring::<u64>::bytes(&OFFSETS, size);
            let side = || Ring::new(Mapping::anonymous(length).unwrap(), &OFFSETS, size).unwrap();
            let (mut producer, mut consumer) = (side(), side());
            for ring in [&mut producer, &mut consumer] {
                (ring.mine, ring.theirs) = (start, start);
            }
            let pair = Self { producer, consumer };
            for ring in [&pair.producer, &pair.consumer] {
                ring.counter(0).store(start, Ordering::Relaxed);
                ring.counter(64).store(start, Ordering::Relaxed);
            }
            pair
        }

        /// Copies counters and entries between the two sides, as shared memory would.
        fn share(&self) {
            let copy = |from: &Ring<u64>, to: &Ring<u64>, at| {
                to.counter(at).store(from.counter(at).load(Ordering::Relaxed), Ordering::Relaxed);
            };
            copy(&self.producer, &self.consumer, 0);
            copy(&self.consumer, &self.producer, 64);
            for number in 0..self.producer.size {
                // SAFETY: both entries are in their mappings, and this test's one thread uses them.
                unsafe { self.consumer.entry(number).write(self.producer.entry(number).read()) };
            }
        }

        fn push(&mut self, value: u64) -> bool {
            let pushed = self.producer.push(value);
            self.producer.publish();
            self.share();
            pushed
        }

        fn pop(&mut self) -> Option<u64> {
            let value = self.consumer.pop();
            self.consumer.release();
            self.share();
            value
        }
    }

    /// Returns the next number of a fixed pseudo-random sequence.
    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *seed >> 33
    }

    #[test]
    fn pushes_and_pops_in_any_order_behave_like_a_queue() {
        for seed in 0..200_u64 {
            let size = 1 << (seed % 5);
            // Close to where the counters wrap.
            let mut pair = Pair::new(size, u32::MAX - (seed % 7) as u32);
            let mut model = std::collections::VecDeque::new();
            let mut state = seed;
            for value in 0..200 {
                if random(&mut state).is_multiple_of(2) {
                    let pushed = pair.push(value);
                    assert_eq!(pushed, model.len() < size as usize, "I2, seed {seed}");
                    model.extend(pushed.then_some(value));
                } else {
                    assert_eq!(pair.pop(), model.pop_front(), "seed {seed}");
                }
                let waiting = pair.consumer.waiting() as usize;
                assert_eq!(waiting > 0, !model.is_empty(), "seed {seed}");
                assert!(waiting <= model.len(), "seed {seed}");
            }
        }
    }

    #[test]
    fn nothing_is_seen_before_it_is_published() {
        let mut pair = Pair::new(4, 0);
        assert!(pair.producer.push(1));
        pair.share();
        assert_eq!(pair.consumer.pop(), None);
        assert!(!pair.producer.is_drained());
        pair.producer.publish();
        pair.share();
        assert_eq!(pair.pop(), Some(1));
        assert!(pair.producer.is_drained());
    }

    #[test]
    fn a_view_sees_whether_entries_wait() {
        let mut pair = Pair::new(4, u32::MAX);
        let pending = pair.consumer.pending();
        assert!(!pending.is_ready());
        assert!(pair.push(1) && pair.push(2) && pending.is_ready());
        assert_eq!(pair.pop(), Some(1));
        assert!(pending.is_ready());
        assert_eq!(pair.pop(), Some(2));
        assert!(!pending.is_ready());
    }

    #[test]
    fn nothing_is_overwritten_before_it_is_released() {
        let mut pair = Pair::new(2, 0);
        assert!(pair.push(1) && pair.push(2) && !pair.push(3));
        assert_eq!(pair.consumer.pop(), Some(1));
        pair.share();
        assert!(!pair.push(3));
        pair.consumer.release();
        pair.share();
        assert!(pair.push(3));
    }

    /// The kernel passes frames on before it releases their entries: a fill ring of half of all frames would be full.
    #[test]
    fn a_fill_ring_for_all_frames_has_room_for_half_of_them_twice() {
        for half in [1, 4, 32] {
            let mut fill = Pair::new(2 * half, u32::MAX);
            for round in 0..10 {
                assert!((0..half).all(|frame| fill.push(frame.into())), "I2, round {round}");
                // It releases the entries that it has read when it looks for more.
                fill.consumer.release();
                fill.share();
                assert!((0..half).all(|_| fill.consumer.pop().is_some()));
            }
            assert!((0..half).all(|frame| fill.push(frame.into())) && !fill.push(0), "it is full");
        }
    }

    #[test]
    fn a_ring_outside_its_memory_is_refused() {
        let length = Ring::<u64>::bytes(&OFFSETS, 8);
        let ring = |offsets: &XdpRingOffset, size| {
            Ring::<u64>::new(Mapping::anonymous(length).unwrap(), offsets, size)
        };
        assert!(ring(&OFFSETS, 8).is_ok());
        assert!(ring(&OFFSETS, 16).is_err());
        assert!(ring(&OFFSETS, 6).is_err());
        assert!(ring(&XdpRingOffset { producer: 1 << 40, ..OFFSETS }, 8).is_err());
        assert!(ring(&XdpRingOffset { consumer: 2, ..OFFSETS }, 8).is_err());
        assert!(ring(&XdpRingOffset { desc: 129, ..OFFSETS }, 4).is_err());
    }

    #[test]
    fn the_kernel_is_woken_if_it_asks_or_cannot_ask() {
        let pair = Pair::new(2, 0);
        assert!(!pair.producer.needs_wakeup());
        pair.producer.counter(8).store(1, Ordering::Relaxed);
        assert!(pair.producer.needs_wakeup());
        let length = Ring::<u64>::bytes(&OFFSETS, 2);
        let offsets = XdpRingOffset { flags: None, ..OFFSETS };
        let old = Ring::<u64>::new(Mapping::anonymous(length).unwrap(), &offsets, 2).unwrap();
        assert!(old.needs_wakeup());
    }
}
