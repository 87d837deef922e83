//! The word by which a task goes to sleep and is woken, exactly once.
//!
//! A task that parks is still on its stack while others may already wake it. So parking has two halves: the task
//! announces it (`begin_park`), and the *next* context on that worker completes it (`finish_park`) when the stack
//! is free. Four states:
//!
//! ```text
//! ACTIVE --begin_park--> PARKING --finish_park--> PARKED
//!   ^  \                    |                        |
//!   |   wake                wake                     wake -> the waker enqueues the task
//!   |    v                  v                        |
//!   +-- NOTIFIED <----------+                        |
//!   |      (finish_park finds NOTIFIED: it enqueues) |
//!   +------------------------------------------------+
//! ```
//!
//! A wake that comes while the task is ACTIVE is kept as a permit, one at most: the next park returns at once.
//! Whoever makes the transition out of PARKED, or finds NOTIFIED at `finish_park`, enqueues the task; nobody else
//! does. Hence no lost wake and no task in two queues.

use super::atomic::{AtomicU32, Ordering};

const ACTIVE: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKING: u32 = 2;
const PARKED: u32 = 3;

/// What [`WakeWord::finish_park`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPark {
    /// The task sleeps; somebody will wake it.
    Parked,
    /// It was woken meanwhile: the caller enqueues it.
    Enqueue,
}

/// See the module's text.
#[derive(Debug)]
pub struct WakeWord(AtomicU32);

impl Default for WakeWord {
    fn default() -> Self {
        WakeWord::new()
    }
}

impl WakeWord {
    /// The word of a task that runs or waits in a run queue.
    pub fn new() -> WakeWord {
        WakeWord(AtomicU32::new(ACTIVE))
    }

    /// The task will park; false if a permit was there, which is consumed, and it must not.
    #[inline]
    #[must_use]
    pub fn begin_park(&self) -> bool {
        let parking = self.0.compare_exchange(ACTIVE, PARKING, Ordering::AcqRel, Ordering::Acquire);
        if parking.is_err() {
            // Only NOTIFIED is possible, and only the task itself leaves it from here. An atomic exchange and not a
            // store: it must read the waker's write, or what the waker did before may be missed.
            self.0.swap(ACTIVE, Ordering::AcqRel);
        }
        parking.is_ok()
    }

    /// The task is off its stack. Called by the next context on the same worker.
    #[inline]
    #[must_use]
    pub fn finish_park(&self) -> AfterPark {
        match self.0.compare_exchange(PARKING, PARKED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => AfterPark::Parked,
            Err(_) => {
                self.0.store(ACTIVE, Ordering::Release);
                AfterPark::Enqueue
            }
        }
    }

    /// Wakes the task; true if the caller has to enqueue it. Safe to call at any time, also for a task that is
    /// long gone and whose word serves another one: that is then a permit too many, which every parker tolerates.
    #[inline]
    #[must_use]
    pub fn wake(&self) -> bool {
        let owner = self.0.swap(NOTIFIED, Ordering::AcqRel) == PARKED;
        if owner {
            self.0.store(ACTIVE, Ordering::Release);
        }
        owner
    }

    /// Forgets a permit, for a word that starts to serve a new task.
    pub fn reset(&self) {
        self.0.store(ACTIVE, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Flag;

    /// One parks (both halves, as task and next context would), `wakers` wake; the task is runnable exactly once
    /// after a wake that follows its condition.
    fn park_and_wake(wakers: usize) {
        let mut model = loom::model::Builder::new();
        // Three forced switches find every known bug of this kind of protocol; without a bound two wakers take minutes.
        model.preemption_bound = Some(3);
        model.check(move || {
            let word = Arc::new(WakeWord::new());
            let condition = Arc::new(Flag::new(0));
            let enqueued = Arc::new(Flag::new(0));
            let threads: Vec<_> = (0..wakers)
                .map(|_| {
                    let (word, condition, enqueued) =
                        (word.clone(), condition.clone(), enqueued.clone());
                    loom::thread::spawn(move || {
                        condition.store(1, Ordering::Relaxed);
                        if word.wake() {
                            enqueued.fetch_add(1, Ordering::AcqRel);
                        }
                    })
                })
                .collect();
            let mut slept = 0;
            while condition.load(Ordering::Relaxed) == 0 {
                if word.begin_park() {
                    slept += 1;
                    if word.finish_park() == AfterPark::Enqueue {
                        enqueued.fetch_add(1, Ordering::AcqRel);
                    }
                    // "Runs again" when enqueued; loom reports a deadlock if nobody ever enqueues it.
                    while enqueued.load(Ordering::Acquire) < slept {
                        loom::thread::yield_now();
                    }
                }
            }
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(enqueued.load(Ordering::Acquire), slept, "enqueued once per sleep");
        });
    }

    #[test]
    fn no_wake_is_lost_and_none_counts_twice() {
        park_and_wake(1);
    }

    #[test]
    fn two_wakers_enqueue_once() {
        park_and_wake(2);
    }
}
