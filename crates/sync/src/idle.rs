//! Which workers sleep, and which thread wakes them.
//!
//! The race to prevent: a worker finds no work and goes to sleep while another adds work and sees no worker asleep.
//! Each side writes first and then reads what the other writes, with a full fence in between:
//!
//! ```text
//! worker:   mark itself asleep; fence; look at the queues; sleep only if they are empty
//! producer: add to a queue;     fence; look at the set;    wake a sleeper that it managed to unmark
//! ```
//!
//! At least one of the two sees the other. Unmarking is one atomic operation: exactly one party (a producer, or the
//! worker that changed its mind) takes a sleeper out of the set, so no two parties wake the same one.

use super::atomic::{AtomicU64, Ordering, fence};

/// A set of sleeping workers, one bit each.
#[derive(Debug)]
pub struct IdleSet(Box<[AtomicU64]>);

impl IdleSet {
    /// Returns the set for workers `0..workers`, none of which sleeps.
    pub fn new(workers: usize) -> IdleSet {
        IdleSet((0..workers.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks `worker` asleep. The caller then checks all queues once more before it sleeps.
    pub fn mark(&self, worker: usize) {
        self.0[worker / 64].fetch_or(1 << (worker % 64), Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Takes `worker` out. Returns false if another thread already has.
    pub fn unmark(&self, worker: usize) -> bool {
        let bit = 1 << (worker % 64);
        self.0[worker / 64].fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Returns whether `worker` is marked.
    pub fn contains(&self, worker: usize) -> bool {
        self.0[worker / 64].load(Ordering::Relaxed) >> (worker % 64) & 1 == 1
    }

    /// Returns how many workers are marked; a hint.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Returns whether no worker is marked; a hint.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Takes any sleeper out. The caller has already added the work.
    pub fn take_any(&self) -> Option<usize> {
        fence(Ordering::SeqCst);
        (0..self.0.len()).find_map(|word| self.take_from(word))
    }

    fn take_from(&self, word: usize) -> Option<usize> {
        let mut seen = self.0[word].load(Ordering::Relaxed);
        while seen != 0 {
            let worker = word * 64 + seen.trailing_zeros() as usize;
            if self.unmark(worker) {
                return Some(worker);
            }
            seen = self.0[word].load(Ordering::Relaxed);
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_taken_once() {
        let last = 129;
        let set = IdleSet::new(last + 1);
        set.mark(3);
        set.mark(last);
        assert!(set.contains(last));
        assert_eq!(set.take_any(), Some(3));
        assert!(!set.unmark(3));
        assert_eq!((set.take_any(), set.take_any()), (Some(last), None));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    /// A producer adds work and wakes; a worker checks, marks itself, checks again and would sleep. Never: work in the
    /// queue, the worker asleep and not woken.
    #[test]
    fn work_never_waits_for_a_sleeper_that_is_not_woken() {
        loom::model(|| {
            let shared = Arc::new((IdleSet::new(1), AtomicU32::new(0)));
            let producer = shared.clone();
            let thread = loom::thread::spawn(move || {
                producer.1.store(1, Ordering::Relaxed);
                producer.0.take_any().is_some()
            });
            shared.0.mark(0);
            let saw_work = shared.1.load(Ordering::Relaxed) == 1;
            let sleeps = !saw_work || !shared.0.unmark(0);
            let woken = thread.join().unwrap();
            assert!(!sleeps || woken, "asleep with work in the queue");
        });
    }
}
