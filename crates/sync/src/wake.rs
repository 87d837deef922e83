//! The word by which a task parks and is woken, exactly once.
//!
//! ```text
//! ACTIVE --begin_park--> PARKED --wake--> ACTIVE: the waker enqueues the task
//!   ^ \
//!   |  wake
//!   |   v
//! NOTIFIED: the next begin_park consumes the permit and does not park
//! ```
//!
//! A wake that arrives while the task is ACTIVE is kept as a permit, at most one. Only the thread that makes the
//! transition out of PARKED enqueues the task. Hence no lost wake and no task in two queues.
//!
//! A task that has announced that it parks is still on its stack for a moment, as `on_cpu` shows: a waker that reads
//! true may only leave the task in the inbox of the run queue whose lock the parking task holds until it is off its
//! stack; nothing takes it from there before. A waker that reads false may put it anywhere.

use super::atomic::{AtomicU32, Ordering};

const ACTIVE: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

/// See the module docs.
#[derive(Debug)]
pub struct WakeWord {
    state: AtomicU32,
    on_cpu: AtomicU32,
}

impl Default for WakeWord {
    fn default() -> Self {
        WakeWord::new()
    }
}

impl WakeWord {
    /// Returns the word of a task that is not parked and not on a CPU.
    pub fn new() -> WakeWord {
        WakeWord { state: AtomicU32::new(ACTIVE), on_cpu: AtomicU32::new(0) }
    }

    /// Called by the task, under its run queue's lock, when it is about to leave its stack. Returns false if there was
    /// a permit, which is consumed; then it must not park.
    #[inline]
    #[must_use]
    pub fn begin_park(&self) -> bool {
        self.on_cpu.store(1, Ordering::Relaxed);
        // Release: a waker that sees PARKED sees `on_cpu` too.
        let parked =
            self.state.compare_exchange(ACTIVE, PARKED, Ordering::AcqRel, Ordering::Acquire);
        if parked.is_err() {
            // Only NOTIFIED is possible, and only the task itself leaves it. An atomic exchange and not a store: it
            // must read the waker's write, or what the waker did before may be missed.
            self.state.swap(ACTIVE, Ordering::AcqRel);
        }
        parked.is_ok()
    }

    /// Marks the task as off its stack. Called by the next context on the same worker, before it releases the lock.
    #[inline]
    pub fn finish_park(&self) {
        self.on_cpu.store(0, Ordering::Release);
    }

    /// Returns whether a parked task may still be on its stack.
    #[inline]
    pub fn is_on_cpu(&self) -> bool {
        self.on_cpu.load(Ordering::Acquire) != 0
    }

    /// Wakes the task. Returns true if the caller must enqueue it. Safe to call at any time, even for a task that is
    /// long gone and whose word serves another: that leaves a spurious permit, which every parker tolerates.
    #[inline]
    #[must_use]
    pub fn wake(&self) -> bool {
        let owner = self.state.swap(NOTIFIED, Ordering::AcqRel) == PARKED;
        if owner {
            self.state.store(ACTIVE, Ordering::Release);
        }
        owner
    }

    /// Discards a permit, for a word that starts to serve a new task.
    pub fn reset(&self) {
        self.state.store(ACTIVE, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::SpinLock;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32 as Cell;

    /// A run queue of at most one task, its lock and its inbox.
    #[derive(Default)]
    struct World {
        word: WakeWord,
        lock: SpinLock,
        /// Left for the queue without its lock.
        inbox: Cell,
        /// Put anywhere.
        anywhere: Cell,
        condition: Cell,
        /// Whether the stack is in use; never by two contexts.
        stack: Cell,
    }

    fn waker(w: &World) {
        w.condition.store(1, Ordering::Relaxed);
        if w.word.wake() {
            let to = if w.word.is_on_cpu() { &w.inbox } else { &w.anywhere };
            assert_eq!(to.swap(1, Ordering::AcqRel), 0, "enqueued twice");
        }
    }

    /// What another CPU may do: run the task if it finds it.
    fn thief(w: &World) -> bool {
        let found = w.anywhere.swap(0, Ordering::AcqRel) == 1
            || (w.lock.try_lock() && {
                let found = w.inbox.swap(0, Ordering::AcqRel) == 1;
                w.lock.unlock();
                found
            });
        if found {
            assert_eq!(w.stack.swap(1, Ordering::AcqRel), 0, "ran on a stack that is in use");
        }
        found
    }

    fn park_and_wake(wakers: usize) {
        let mut model = loom::model::Builder::new();
        // Three forced switches find every known bug of this kind of protocol; without a bound two wakers take minutes.
        model.preemption_bound = Some(3);
        model.check(move || {
            let w = Arc::new(World { stack: Cell::new(1), ..World::default() });
            let threads: Vec<_> = (0..wakers)
                .map(|_| {
                    let w = w.clone();
                    loom::thread::spawn(move || waker(&w))
                })
                .collect();
            // The task: its run queue is locked from the announcement to the end of the switch. No other CPU holds the
            // lock here, but one may look later.
            let mut ran = true;
            if w.condition.load(Ordering::Relaxed) == 0 {
                assert!(w.lock.try_lock());
                ran = !w.word.begin_park();
                if !ran {
                    w.stack.store(0, Ordering::Release);
                    w.word.finish_park();
                }
                w.lock.unlock();
            }
            // Another CPU, at any time after that.
            ran = ran || thief(&w);
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(ran || thief(&w), "a wake was lost");
            assert_eq!(w.condition.load(Ordering::Acquire), 1);
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
