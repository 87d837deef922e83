//! Work that is put off until some thread does it.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Work at up to 128 places that was put off, and how much. Threads put and take without a lock; what was put is taken
/// by a thread that sees all that its putter had done before.
#[derive(Debug)]
pub struct Deferred {
    amount: AtomicU32,
    /// The places, as bits.
    places: [AtomicU64; 2],
}

impl Default for Deferred {
    fn default() -> Deferred {
        let places = [AtomicU64::new(0), AtomicU64::new(0)];
        Deferred { amount: AtomicU32::new(0), places }
    }
}

impl Deferred {
    /// Returns how much there is.
    #[inline]
    pub fn amount(&self) -> u32 {
        self.amount.load(Ordering::Relaxed)
    }

    /// Adds work of this `amount`, which is not 0, at `places`, which are bits.
    pub fn put(&self, places: u128, amount: u32) {
        // Released: who takes a place sees its work. It may do so before it sees the amount.
        for (word, part) in self.places.iter().zip([places as u64, (places >> 64) as u64]) {
            if part != 0 {
                word.fetch_or(part, Ordering::Release);
            }
        }
        // Released: who takes the amount finds the places, unless another has taken them.
        self.amount.fetch_add(amount, Ordering::Release);
    }

    /// Takes all. Returns the places, as bits.
    pub fn take(&self) -> u128 {
        if self.amount.swap(0, Ordering::Acquire) == 0 {
            return 0;
        }
        let [low, high] = &self.places;
        let high = high.swap(0, Ordering::Acquire);
        u128::from(high) << 64 | u128::from(low.swap(0, Ordering::Acquire))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_once() {
        let deferred = Deferred::default();
        assert_eq!(deferred.take(), 0);
        deferred.put(1 << 3 | 1 << 100, 2);
        deferred.put(1 << 127, 5);
        assert_eq!(deferred.amount(), 7);
        assert_eq!(deferred.take(), 1 << 3 | 1 << 100 | 1 << 127);
        assert_eq!((deferred.take(), deferred.amount()), (0, 0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    /// Two threads work on the same place: each publishes, puts and takes. What a taker does reaches all that was
    /// published before the put, and nothing is left when both are done.
    #[test]
    fn nothing_is_forgotten() {
        loom::model(|| {
            let deferred = Arc::new(Deferred::default());
            // What was published by each thread, and what was found done.
            let (published, done) = (
                Arc::new([AtomicU32::new(0), AtomicU32::new(0)]),
                Arc::new([AtomicU32::new(0), AtomicU32::new(0)]),
            );
            let work = |own: usize| {
                let (deferred, published, done) =
                    (Arc::clone(&deferred), Arc::clone(&published), Arc::clone(&done));
                move || {
                    // Relaxed: only the put makes it visible.
                    published[own].store(1, Ordering::Relaxed);
                    deferred.put(1, 1);
                    if deferred.take() != 0 {
                        for (published, done) in published.iter().zip(&*done) {
                            done.fetch_or(published.load(Ordering::Relaxed), Ordering::Relaxed);
                        }
                    }
                }
            };
            let other = loom::thread::spawn(work(1));
            work(0)();
            other.join().unwrap();
            assert_eq!((deferred.amount(), deferred.take()), (0, 0));
            assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
        });
    }
}
