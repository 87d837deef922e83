//! The free stacks that a worker keeps for itself, by class. Never allocates.

use crate::pool::{self, FreeList, STACK_CLASSES};
use crate::task::TaskRef;

/// The maximum number of stacks of a class that move between a cache and the global pool at a time.
const BATCH: usize = 32;

/// Address space of the stacks of one class that move at a time: cached stacks stay as deep as tasks have used them.
const BATCH_BYTES: usize = 32 << 20;

/// Returns how many stacks of `class` move at a time; a cache keeps up to twice as many.
fn batch(class: usize) -> usize {
    BATCHES[class]
}

/// A table: a division at the end of each task would cost 10 ns.
const BATCHES: [usize; STACK_CLASSES.len()] = {
    let mut batches = [BATCH; STACK_CLASSES.len()];
    let mut class = 0;
    while class < batches.len() {
        let fit = BATCH_BYTES / STACK_CLASSES[class];
        if fit < BATCH {
            batches[class] = if fit == 0 { 1 } else { fit };
        }
        class += 1;
    }
    batches
};

/// See the module.
#[derive(Default)]
pub(crate) struct StackCache([FreeList; STACK_CLASSES.len()]);

impl StackCache {
    /// Takes a stack of `class`; refills the cache from the global pool if there is none.
    #[inline]
    pub(crate) fn take(&mut self, class: u8) -> Option<TaskRef> {
        let stacks = &mut self.0[class as usize];
        if stacks.len() == 0 {
            pool::take_free(class, batch(class as usize), stacks);
        }
        stacks.pop()
    }

    /// Keeps `task`. Returns whether that fills the cache of its class.
    #[inline]
    pub(crate) fn keep(&mut self, task: TaskRef) -> bool {
        let class = task.get().stack.class as usize;
        self.0[class].push(task);
        self.0[class].len() == 2 * batch(class)
    }

    /// Removes from a full cache the stacks that go to the global pool.
    pub(crate) fn surplus(&mut self, class: u8) -> impl Iterator<Item = TaskRef> {
        let stacks = &mut self.0[class as usize];
        std::iter::from_fn(|| stacks.pop()).take(batch(class as usize))
    }
}

impl Drop for StackCache {
    /// Gives all stacks to the global pool. Their runtime has ended.
    fn drop(&mut self) {
        for (class, stacks) in self.0.iter_mut().enumerate() {
            pool::give(
                class as u8,
                std::iter::from_fn(|| stacks.pop()).inspect(|task| task.get().disown()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_of_any_class_gives_half_away() {
        let mut cache = StackCache::default();
        for class in [0, 3] {
            let mut given = 0;
            for _ in 0..5 * batch(class as usize) {
                if cache.keep(pool::take(class).unwrap()) {
                    let surplus: Vec<_> = cache.surplus(class).collect();
                    given += surplus.len();
                    pool::give(class, surplus.into_iter());
                }
            }
            assert_eq!(given, 4 * batch(class as usize));
            assert_eq!(cache.0[class as usize].len(), batch(class as usize));
            let taken = std::iter::from_fn(|| cache.take(class)).take(2 * batch(class as usize));
            pool::give(class, taken.collect::<Vec<_>>().into_iter());
        }
    }

    #[test]
    fn a_cache_keeps_few_large_stacks() {
        let bytes = |class: u8| batch(class as usize) * STACK_CLASSES[class as usize];
        assert_eq!(bytes(pool::DEFAULT_CLASS), 8 << 20);
        assert!(bytes(5) <= BATCH_BYTES && batch(6) == 1 && batch(7) == 1);
    }
}
