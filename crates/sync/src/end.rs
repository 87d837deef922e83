//! The end of a task, and the waiter for it.
//!
//! One word decides:
//!
//! ```text
//! NONE ----------> a waiter -> DONE       the handle joins, then the task ends
//! NONE -> ENDED -> a waiter -> DONE       the result is there, the task is still on its stack; then the handle joins
//! NONE -> ENDED -> DONE                   it ends before the handle joins
//! NONE -> DETACHED -> DONE                the handle was dropped first: the task drops its own result
//! ENDED -> DETACHED -> DONE               the handle drops the result
//! any but DETACHED and DONE -> ABANDONED  the runtime ends before the task: who joins is told so
//! ABANDONED -> DETACHED                   and has been told, or the handle was dropped
//! ABANDONED -> DONE                       the task was in the kernel, came back and ended all the same
//! ```
//!
//! A waiter whose time is limited can be revoked. It marks its word; only then must the task record in a waiter's word,
//! too, that its result is there. Revoking restores the state that the word stands for:
//!
//! ```text
//! NONE  -> REVOCABLE | waiter          -> NONE    the time is up before the result is there
//! ENDED -> REVOCABLE | RESULT | waiter -> ENDED   the result is there, the time is up before the stack is free
//! REVOCABLE | waiter -> REVOCABLE | RESULT | waiter   the result comes meanwhile
//! ```
//!
//! Either word becomes DONE or ABANDONED like that of any waiter; after that it cannot be revoked.
//!
//! DONE is set by the context that runs after the task, so it means both: the result is there, and the stack is free. A
//! thread that finds DETACHED while setting DONE recycles the task; otherwise the handle does, once it sees DONE. Hence
//! the result is taken or dropped exactly once, and the task is recycled exactly once. For an abandoned task both
//! happen at most once: what it owns is lost with its stack.

use super::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

const NONE: usize = 0;
const DONE: usize = usize::MAX;
const DETACHED: usize = usize::MAX - 1;
const ENDED: usize = usize::MAX - 2;
const ABANDONED: usize = usize::MAX - 3;

/// In a waiter's word: the waiter may revoke it.
const REVOCABLE: usize = 2;
/// In a revocable waiter's word: the result is there.
const RESULT: usize = 4;

/// Returns whether `word` was left by a waiter.
const fn is_waiter(word: usize) -> bool {
    word != NONE && word < ABANDONED
}

/// See the module docs.
#[derive(Debug)]
pub struct EndWord(AtomicUsize);

/// What the context after an ended task must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing: the handle does the rest.
    Nothing,
    /// Recycle the task: there is no handle.
    Recycle,
    /// Wake the waiter that left this word.
    Wake(usize),
}

impl Default for EndWord {
    fn default() -> Self {
        EndWord::new()
    }
}

impl EndWord {
    /// Returns the word of a running task that has a handle.
    pub fn new() -> EndWord {
        EndWord(AtomicUsize::new(NONE))
    }

    /// Forgets the previous task.
    pub fn reset(&self) {
        self.0.store(NONE, Relaxed);
    }

    /// Called by the task when its result is in place. Returns true if the task must drop it because its handle is
    /// gone.
    pub fn result_is_there(&self) -> bool {
        let seen = self.0.load(Acquire);
        if seen == NONE || seen == DETACHED {
            let ended = self.0.compare_exchange(NONE, ENDED, AcqRel, Acquire);
            return ended.is_err_and(|now| self.add_result(now));
        }
        // A waiter of the other kind takes the result itself.
        seen & REVOCABLE != 0 && self.add_result(seen)
    }

    /// [`EndWord::result_is_there`] for a word that is not [`NONE`], or has a waiter that may revoke it.
    #[cold]
    fn add_result(&self, mut seen: usize) -> bool {
        loop {
            let next = match seen {
                NONE => ENDED,
                // Only here may the task drop the result: after ENDED the handle does.
                DETACHED => return true,
                word if is_waiter(word) && word & REVOCABLE != 0 => word | RESULT,
                _ => return false,
            };
            match self.0.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
    }

    /// Returns the word left by a waiter that cannot revoke it.
    #[inline]
    pub fn waiter(&self) -> Option<usize> {
        let word = self.0.load(Acquire);
        (is_waiter(word) && word & REVOCABLE == 0).then_some(word)
    }

    /// Called when the task is off its stack for good.
    #[inline]
    pub fn publish(&self) -> Ended {
        match self.0.swap(DONE, AcqRel) {
            NONE | ENDED | ABANDONED => Ended::Nothing,
            DETACHED => Ended::Recycle,
            word => Ended::Wake(word & !(REVOCABLE | RESULT)),
        }
    }

    /// Like [`EndWord::publish`], if the waiter was already woken. The word is that waiter's alone and needs no
    /// exchange.
    #[inline]
    pub fn publish_woken(&self) {
        self.0.store(DONE, Release);
    }

    /// Returns whether the task has ended and its stack is free.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.load(Acquire) == DONE
    }

    /// Leaves `word` for the end of the task, which wakes its waiter. Returns false if the task has ended or was
    /// abandoned. Called by the handle, once.
    #[inline]
    pub fn register(&self, word: usize) -> bool {
        debug_assert!(is_waiter(word));
        let mut seen = self.0.load(Acquire);
        while seen != DONE && seen != ABANDONED {
            match self.0.compare_exchange(seen, word, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Like [`EndWord::register`], for a waiter that may [revoke](EndWord::revoke) it. Bits 1 and 2 of `word` are
    /// clear.
    #[must_use]
    pub fn register_revocable(&self, word: usize) -> bool {
        debug_assert!(is_waiter(word) && word & (REVOCABLE | RESULT) == 0);
        let mut seen = self.0.load(Acquire);
        while seen != DONE && seen != ABANDONED {
            let result = if seen == ENDED { RESULT } else { 0 };
            match self.0.compare_exchange(seen, word | REVOCABLE | result, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Takes back the word of [`EndWord::register_revocable`], so that the handle can be used again. Returns false if
    /// the task has ended or was abandoned.
    #[must_use]
    pub fn revoke(&self) -> bool {
        let mut seen = self.0.load(Acquire);
        while is_waiter(seen) {
            let before = if seen & RESULT != 0 { ENDED } else { NONE };
            match self.0.compare_exchange(seen, before, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Returns whether a waiter need not wait any longer: the task has ended or was abandoned.
    #[inline]
    pub fn is_settled(&self) -> bool {
        matches!(self.0.load(Acquire), DONE | ABANDONED)
    }

    /// Called when the task will not run again, unless it is in the kernel now. Returns the waiter to wake, if there is
    /// one. Does nothing to a task that has ended or has no handle.
    #[must_use]
    pub fn abandon(&self) -> Option<usize> {
        let mut seen = self.0.load(Acquire);
        while !matches!(seen, DONE | DETACHED | ABANDONED) {
            match self.0.compare_exchange(seen, ABANDONED, AcqRel, Acquire) {
                Ok(_) => return is_waiter(seen).then_some(seen & !(REVOCABLE | RESULT)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Called by the handle once [`EndWord::is_settled`]. Returns true if the task was abandoned, which from now on has
    /// no handle; false if it has ended.
    #[must_use]
    #[inline]
    pub fn give_up(&self) -> bool {
        // DONE is final, and an exchange costs a tenth of a spawn.
        self.0.load(Acquire) == ABANDONED
            && self.0.compare_exchange(ABANDONED, DETACHED, AcqRel, Acquire).is_ok()
    }

    /// Called when the handle is dropped without having joined: calls `drop_result` if the task has left a result.
    /// Returns whether the caller must recycle the task.
    pub fn detach(&self, drop_result: impl FnOnce()) -> bool {
        let mut seen = self.0.load(Acquire);
        while seen == NONE || seen == ABANDONED {
            match self.0.compare_exchange(seen, DETACHED, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
        // ENDED or DONE: no other thread can have joined.
        drop_result();
        while seen != DONE {
            match self.0.compare_exchange(seen, DETACHED, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
        true
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::atomic::AtomicU32;
    use loom::sync::Arc;

    /// One task and its handle; counts what must happen once.
    #[derive(Default)]
    struct World {
        end: EndWord,
        results: AtomicU32,
        recycled: AtomicU32,
        wakes: AtomicU32,
    }

    fn count(of: &AtomicU32) {
        of.fetch_add(1, AcqRel);
    }

    /// What the task and the context after it do.
    fn task(w: &World) {
        if w.end.result_is_there() {
            count(&w.results);
        }
        match w.end.publish() {
            Ended::Nothing => {}
            Ended::Recycle => count(&w.recycled),
            Ended::Wake(word) => {
                assert_eq!(word, 64);
                count(&w.wakes);
            }
        }
    }

    fn check(handle: impl Fn(&World) + Send + Sync + Copy + 'static) {
        loom::model(move || {
            let w = Arc::new(World::default());
            let other = w.clone();
            let thread = loom::thread::spawn(move || task(&other));
            handle(&w);
            thread.join().unwrap();
            assert_eq!(w.results.load(Acquire), 1, "the result is taken or dropped once");
            assert_eq!(w.recycled.load(Acquire), 1, "the task is recycled once");
        });
    }

    #[test]
    fn a_dropped_handle_leaves_nothing_behind_and_nothing_twice() {
        check(|w| {
            if w.end.detach(|| count(&w.results)) {
                count(&w.recycled);
            }
        });
    }

    #[test]
    fn a_joiner_is_woken_or_finds_the_end() {
        check(|w| {
            if w.end.register(64) {
                while w.wakes.load(Acquire) == 0 {
                    loom::thread::yield_now();
                }
            }
            assert!(w.end.is_done());
            count(&w.results);
            count(&w.recycled);
        });
    }

    /// Waits with a limit that passes at once, then drops the handle or joins.
    fn give_up_waiting(w: &World, then: impl Fn(&World)) {
        if w.end.register_revocable(64) && w.end.revoke() {
            return then(w);
        }
        assert!(w.end.is_done());
        count(&w.results);
        count(&w.recycled);
    }

    #[test]
    fn a_handle_that_is_dropped_after_a_limited_wait_leaves_nothing_behind_and_nothing_twice() {
        check(|w| {
            give_up_waiting(w, |w| {
                if w.end.detach(|| count(&w.results)) {
                    count(&w.recycled);
                }
            });
        });
    }

    #[test]
    fn a_joiner_that_has_waited_with_a_limit_before_is_woken_or_finds_the_end() {
        check(|w| {
            give_up_waiting(w, |w| {
                if w.end.register(64) {
                    while w.wakes.load(Acquire) == 0 {
                        loom::thread::yield_now();
                    }
                }
                assert!(w.end.is_done());
                count(&w.results);
                count(&w.recycled);
            });
        });
    }

    /// The runtime abandons the task while it ends and `handle` runs: the result is dropped or taken, and the task
    /// recycled, at most once; a waiter is woken.
    fn check_abandoned(handle: impl Fn(&World) + Send + Sync + Copy + 'static) {
        loom::model(move || {
            let w = Arc::new(World::default());
            let (ending, stopping) = (w.clone(), w.clone());
            let ending = loom::thread::spawn(move || task(&ending));
            let stopping = loom::thread::spawn(move || {
                if let Some(word) = stopping.end.abandon() {
                    assert_eq!(word, 64);
                    count(&stopping.wakes);
                }
            });
            handle(&w);
            ending.join().unwrap();
            stopping.join().unwrap();
            assert!(w.results.load(Acquire) <= 1);
            assert_eq!(w.recycled.load(Acquire), 1, "it has ended, so its stack is free");
        });
    }

    #[test]
    fn a_dropped_handle_of_an_abandoned_task_leaves_no_stack_behind() {
        check_abandoned(|w| {
            if w.end.detach(|| count(&w.results)) {
                count(&w.recycled);
            }
        });
    }

    #[test]
    fn a_joiner_learns_that_the_task_was_abandoned_or_has_ended() {
        check_abandoned(|w| {
            if w.end.register(64) {
                while w.wakes.load(Acquire) == 0 {
                    loom::thread::yield_now();
                }
            }
            assert!(w.end.is_settled());
            if !w.end.give_up() {
                count(&w.results);
                count(&w.recycled);
            }
        });
    }

    #[test]
    fn a_limited_wait_for_an_abandoned_task_ends_and_its_handle_leaves_nothing_twice() {
        check_abandoned(|w| {
            if w.end.register_revocable(64) && w.end.revoke() {
                if w.end.detach(|| count(&w.results)) {
                    count(&w.recycled);
                }
                return;
            }
            assert!(w.end.is_settled());
            if !w.end.give_up() {
                count(&w.results);
                count(&w.recycled);
            }
        });
    }
}
