//! Resets thread-local variables to their initial values, for the next task on the same block.

use super::probe::{self, Module, Probe};
use std::sync::OnceLock;

/// One stretch of thread-local storage: its offset below the thread pointer and its initial contents.
#[derive(Clone, Debug)]
struct Stretch {
    offset: isize,
    image: Box<[u8]>,
}

impl Stretch {
    fn of(module: &Module, offset: isize) -> Stretch {
        let mut image = vec![0; module.len];
        // SAFETY: the loader says that so many bytes are initialised; they are mapped as long as the module.
        let given =
            unsafe { std::slice::from_raw_parts(module.image as *const u8, module.image_len) };
        image[..given.len()].copy_from_slice(given);
        Stretch { offset, image: image.into() }
    }
}

/// The storage of every module loaded when the first runtime started, except the C library's and the loader's: their
/// state (allocator caches, locale) suits the next task as it is.
///
/// A library loaded later keeps its thread-local variables from one task to the next on the same block.
pub(crate) struct Images(Vec<Stretch>);

static IMAGES: OnceLock<Images> = OnceLock::new();

impl Images {
    /// Records the modules whose storage has the same place in both threads.
    pub(super) fn learn(a: &Probe, b: &Probe) {
        let place = |p: &Probe, m: &Module| m.address as isize - p.tp as isize;
        let fixed = a.modules.iter().filter(|m| !m.is_libc).filter(|m| {
            let same = |n: &&Module| n.image == m.image && place(b, n) == place(a, m);
            b.modules.iter().any(|n| same(&n))
        });
        let _ = IMAGES.set(Images(fixed.map(|m| Stretch::of(m, place(a, m))).collect()));
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

    /// Restores the block at `fs`. Its task is no longer the current one (`Task::leave_current`), so if the task
    /// touched no variable, there is nothing to clear.
    ///
    /// # Safety
    /// `fs` is a task's block, no destructor of it is outstanding and no context runs on it.
    pub(crate) unsafe fn restore(fs: usize) {
        for Stretch { offset, image } in &Images::get().0 {
            // SAFETY: the stretch lies in the block, which nothing else uses.
            let block = unsafe {
                std::slice::from_raw_parts_mut((fs as isize + offset) as *mut u8, image.len())
            };
            // Most tasks touch no variables of most libraries, and comparing costs less than writing.
            if *block != **image {
                block.copy_from_slice(image);
            }
        }
    }
}
