//! Sleeping in a poll that others share, and being called out of it: a model of what the runtime's `rest` and `poller` do, with its lock.
//!
//! ```text
//! sleeper: lies down; takes the poll; *looks whether it is called*; waits for the bell
//! caller:  says that the sleeper is called; if it lay there, rings the bell
//! another: has the poll until now, hears any bell that rings, leaves
//! ```
//!
//! Who waits alone hears the bell. One that rang before may have been heard by another, hence the look in between.

use super::SpinLock;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};

const IN_POLL: u32 = 2;
const CALLED: u32 = 3;

struct World {
    bed: AtomicU32,
    polling: SpinLock,
    bell: AtomicU32,
}

/// Whether the sleeper, who had the poll, found nothing to end it.
fn sleeps(w: &World) -> bool {
    if !w.polling.try_lock() {
        // Goes round once more.
        return false;
    }
    let uncalled = w.bed.load(Ordering::Acquire) == IN_POLL;
    let silent = uncalled && w.bell.swap(0, Ordering::AcqRel) == 0;
    // One that sleeps keeps the poll.
    if !silent {
        w.polling.unlock();
    }
    silent
}

#[test]
fn a_call_is_heard_by_the_one_that_it_is_for() {
    loom::model(|| {
        let w = Arc::new(World {
            bed: AtomicU32::new(IN_POLL),
            polling: SpinLock::new(),
            bell: AtomicU32::new(0),
        });
        let (theirs, others) = (w.clone(), w.clone());
        let caller = loom::thread::spawn(move || {
            if theirs.bed.swap(CALLED, Ordering::AcqRel) == IN_POLL {
                // Not a store: loom lets later loads miss one.
                theirs.bell.swap(1, Ordering::AcqRel);
            }
        });
        let another = loom::thread::spawn(move || {
            if others.polling.try_lock() {
                others.bell.swap(0, Ordering::AcqRel);
                others.polling.unlock();
            }
        });
        let asleep = sleeps(&w);
        caller.join().unwrap();
        another.join().unwrap();
        assert!(
            !asleep || w.bell.swap(0, Ordering::AcqRel) == 1,
            "called, and nobody rings any more"
        );
    });
}
