//! Thread-local variables back to their initial values, for the next task on the same block.

use super::probe::{self, Module, Probe};
use std::sync::OnceLock;

/// One stretch of thread-local storage: where it lies under the thread pointer and what it starts with.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    offset: isize,
    image: *const u8,
    image_len: usize,
    len: usize,
}

/// The storage of every module that was loaded when the first runtime started, except the C library's and the
/// loader's: their state (allocator caches, locale) is right for the next task as it is.
///
/// A library that is loaded later keeps its thread-local variables from one task to the next on the same block.
pub(crate) struct Images(Vec<Stretch>);

// SAFETY: the images are read-only data of loaded modules.
unsafe impl Send for Images {}
// SAFETY: as above.
unsafe impl Sync for Images {}

static IMAGES: OnceLock<Images> = OnceLock::new();

impl Images {
    /// Takes the modules whose storage has the same place in both threads.
    pub(super) fn learn(a: &Probe, b: &Probe) {
        let place = |p: &Probe, m: &Module| m.address as isize - p.tp as isize;
        let fixed = a.modules.iter().filter(|m| !m.is_libc).filter(|m| {
            let same = |n: &&Module| n.image == m.image && place(b, n) == place(a, m);
            b.modules.iter().any(|n| same(&n))
        });
        let stretch = |m: &Module| Stretch {
            offset: place(a, m),
            image: m.image as *const u8,
            image_len: m.image_len,
            len: m.len,
        };
        let _ = IMAGES.set(Images(fixed.map(stretch).collect()));
    }

    fn get() -> &'static Images {
        if let Some(images) = IMAGES.get() {
            return images;
        }
        if let Ok([a, b]) = probe::pair(4096) {
            Images::learn(&a, &b);
        }
        IMAGES.get_or_init(|| Images(vec![]))
    }

    /// Restores the block at `fs`.
    ///
    /// # Safety
    /// `fs` is a task's block, no destructor of it is outstanding and no context runs on it.
    pub(crate) unsafe fn restore(fs: usize) {
        for s in &Images::get().0 {
            // SAFETY: the stretch lies in the block; images are mapped as long as their module, and modules with fixed
            // storage are loaded at start-up.
            unsafe {
                let at = (fs as isize + s.offset) as *mut u8;
                std::ptr::copy_nonoverlapping(s.image, at, s.image_len);
                let rest = std::slice::from_raw_parts_mut(at.add(s.image_len), s.len - s.image_len);
                // Most tasks touch nothing of most libraries, and looking is half the price of clearing.
                if !is_zero(rest) {
                    rest.fill(0);
                }
            }
        }
    }
}

/// Whether all of `bytes` are zero.
#[inline]
fn is_zero(bytes: &[u8]) -> bool {
    #[target_feature(enable = "avx2")]
    fn wide(bytes: &[u8]) -> bool {
        all_zero(bytes)
    }
    match std::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature is there.
        true => unsafe { wide(bytes) },
        false => all_zero(bytes),
    }
}

/// A word at a time, which the compiler makes as many as the processor can take.
#[inline(always)]
fn all_zero(bytes: &[u8]) -> bool {
    // SAFETY: any bits are a valid word.
    let (head, words, tail) = unsafe { bytes.align_to::<u64>() };
    let ends = head.iter().chain(tail).fold(0, |all, byte| all | byte);
    words.iter().fold(u64::from(ends), |all, word| all | word) == 0
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn one_byte_anywhere_is_seen() {
        let mut bytes = [0u8; 77];
        assert!(is_zero(&bytes) && is_zero(&[]));
        for i in 0..bytes.len() {
            bytes[i] = 1;
            assert!(!is_zero(&bytes) && is_zero(&bytes[..i]));
            bytes[i] = 0;
        }
    }
}
