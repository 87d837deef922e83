//! Memory for futures, by size class: mapped in slabs, recycled forever, never unmapped. So a stale reference to a
//! future points to a header, perhaps of a later one, as with the blocks of threads ([`crate::pool`]).

use crate::task::{Header, HeaderRef, Vtable};
use heddle_sys::memory;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// The size classes in bytes, headers included: steps of a third at most.
const SIZES: [usize; CLASSES] =
    [96, 128, 160, 192, 224, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096];

const CLASSES: usize = 17;

/// The alignment of each.
pub(crate) const ALIGN: usize = 32;

/// Bytes mapped at once.
const SLAB: usize = 256 << 10;

/// The largest number of headers that move between a worker's cache and the pool at a time.
const BATCH: usize = 256;

/// Bytes of one class that move at a time.
const BATCH_BYTES: usize = 128 << 10;

const fn batch(class: usize) -> usize {
    let fit = BATCH_BYTES / SIZES[class];
    if fit < BATCH { fit } else { BATCH }
}

/// Returns the smallest class with at least `size` bytes.
pub(crate) const fn class_for(size: usize) -> Option<u8> {
    let mut class = 0;
    while class < CLASSES {
        if SIZES[class] >= size {
            return Some(class as u8);
        }
        class += 1;
    }
    None
}

/// Returns the table of free memory of a class.
pub(crate) fn free_vtable(class: u8) -> &'static Vtable {
    static FREE: [Vtable; CLASSES] = {
        let mut tables = [const { Vtable::free(0) }; CLASSES];
        let mut class = 0;
        while class < CLASSES {
            tables[class] = Vtable::free(class as u8);
            class += 1;
        }
        tables
    };
    &FREE[class as usize]
}

/// Free memory: a list whose links lie in it.
#[derive(Default)]
struct FreeList {
    first: usize,
    len: usize,
}

impl FreeList {
    const EMPTY: FreeList = FreeList { first: 0, len: 0 };

    #[inline]
    fn push(&mut self, header: HeaderRef) {
        // SAFETY: free memory, and ours.
        unsafe { header.link().write(self.first) };
        self.first = header.addr();
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<HeaderRef> {
        // SAFETY: not zero, so `push` put a header's address there, and its link.
        unsafe {
            let header = (self.first != 0).then(|| HeaderRef::from_addr(self.first))?;
            self.first = header.link().read();
            self.len -= 1;
            Some(header)
        }
    }
}

/// Free memory of one class, and untouched memory for more.
struct Class {
    free: FreeList,
    fresh: (usize, usize),
}

static POOL: [Mutex<Class>; CLASSES] =
    [const { Mutex::new(Class { free: FreeList::EMPTY, fresh: (0, 0) }) }; CLASSES];

fn lock(class: u8) -> MutexGuard<'static, Class> {
    POOL[class as usize].lock().unwrap_or_else(|e| e.into_inner())
}

/// All locks of the pool, for a fork.
pub(crate) struct Locks(#[expect(dead_code)] [MutexGuard<'static, Class>; CLASSES]);

/// Takes all locks of the pool.
pub(crate) fn lock_all() -> Locks {
    Locks(std::array::from_fn(|class| lock(class as u8)))
}

impl Class {
    /// Returns free memory of this class, number `class`.
    fn take(&mut self, class: u8) -> io::Result<HeaderRef> {
        if let Some(header) = self.free.pop() {
            return Ok(header);
        }
        let size = SIZES[class as usize];
        if self.fresh.1 < size {
            self.fresh = (memory::reserve(SLAB)? as usize, SLAB);
        }
        let (at, left) = self.fresh;
        self.fresh = (at + size, left - size);
        let at = at as *mut Header;
        // SAFETY: fresh memory of ours, aligned as all sizes are, with room for a header, and never unmapped.
        unsafe {
            at.write(Header::new(free_vtable(class)));
            Ok(HeaderRef::new(NonNull::new_unchecked(at)))
        }
    }
}

/// Returns memory of `class`.
///
/// # Errors
/// The system's, if it is out of memory.
pub(crate) fn take(class: u8) -> io::Result<HeaderRef> {
    lock(class).take(class)
}

/// Returns memory of `class` to the pool.
pub(crate) fn give(class: u8, headers: impl Iterator<Item = HeaderRef>) {
    let mut pool = lock(class);
    headers.for_each(|header| pool.free.push(header));
}

/// The free memory that a worker keeps for itself, by class.
#[derive(Default)]
pub(crate) struct SlabCache([FreeList; CLASSES]);

impl SlabCache {
    /// Takes memory of `class` that is kept here. It may belong to a runtime, with a number.
    #[inline]
    pub(crate) fn take(&mut self, class: u8) -> Option<HeaderRef> {
        self.0[class as usize].pop()
    }

    /// Takes memory of `class` from the pool, and some more to keep.
    ///
    /// # Errors
    /// The system's, if it is out of memory.
    pub(crate) fn refill(&mut self, class: u8) -> io::Result<HeaderRef> {
        let kept = &mut self.0[class as usize];
        let mut pool = lock(class);
        while kept.len < batch(class as usize)
            && let Some(header) = pool.free.pop()
        {
            kept.push(header);
        }
        kept.pop().map_or_else(|| pool.take(class), Ok)
    }

    /// Keeps `header`. Returns whether that fills the cache of its class.
    #[inline]
    pub(crate) fn keep(&mut self, header: HeaderRef) -> bool {
        let class = header.class() as usize;
        self.0[class].push(header);
        self.0[class].len >= 4 * batch(class)
    }

    /// Removes half of what is kept of a class, for the pool.
    pub(crate) fn surplus(&mut self, class: u8) -> impl Iterator<Item = HeaderRef> {
        let kept = &mut self.0[class as usize];
        std::iter::from_fn(|| kept.pop()).take(2 * batch(class as usize))
    }
}

impl Drop for SlabCache {
    /// Gives all memory to the pool. Its runtime has ended.
    fn drop(&mut self) {
        for (class, kept) in self.0.iter_mut().enumerate() {
            let headers = std::iter::from_fn(|| kept.pop());
            give(class as u8, headers.inspect(|header| header.get().entity.disown()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_a_class_that_fits_the_alignment() {
        assert_eq!(class_for(1), Some(0));
        assert_eq!(class_for(129), Some(2));
        assert_eq!(class_for(4096), Some(16));
        assert_eq!(class_for(4097), None);
        assert!(SIZES.iter().all(|size| size % ALIGN == 0));
        assert!(SIZES.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(size_of::<Header>() < SIZES[0]);
    }

    #[test]
    fn a_full_cache_gives_half_away_and_gets_it_back() {
        let (mut cache, class) = (SlabCache::default(), 16);
        let full = 4 * batch(class as usize);
        for number in 1..=full {
            let header = take(class).unwrap();
            assert_eq!(header.class(), class);
            assert_eq!(cache.keep(header), number == full);
        }
        give(class, cache.surplus(class).collect::<Vec<_>>().into_iter());
        assert_eq!(cache.0[class as usize].len, full / 2);
        let left: Vec<_> = std::iter::from_fn(|| cache.take(class)).collect();
        assert_eq!(left.len(), full / 2);
        let first = cache.refill(class).unwrap();
        assert_eq!(first.get().entity.liveness().map(|_| ()), None);
        assert_eq!(cache.0[class as usize].len, batch(class as usize) - 1);
        give(class, left.into_iter().chain([first]));
    }
}
