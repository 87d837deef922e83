//! The state of a future that an executor polls, of its handle, and the number of references to it.
//!
//! One word decides, and every arrow is one atomic operation:
//!
//! ```text
//!  waits --wake--> scheduled --begin--> running --end_poll--> waits
//!                      ^                   |  |
//!                      +-- end_poll, woken |  +--end--> done
//!                          meanwhile ------+
//! ```
//!
//! - *Waking* makes a future that waits scheduled; the waker that did so enqueues it. A future that is running
//!   remembers the wake, and its poller enqueues it. In any other state a wake does nothing: the next poll comes
//!   anyway.
//! - *Cancelling* is a wake that leaves a mark: the next time that the future is taken from the queue, it is dropped
//!   instead of polled. A poll that is running ends first, and if it returns a value, the value wins.
//! - *The handle* may leave a waker for the end in a field beside the word. The field is the handle's alone until it
//!   publishes the waker, and again once it has retracted it; the end takes a waker that it finds published. The output
//!   is the handle's if it exists when the future ends, else the poller drops it.
//! - A future whose runtime has ended before it is *lost*: its handle is told so, and gets no output. Its poll may
//!   still return, if it was in the kernel.
//!
//! References are counted in the upper bits: one of the scheduler's until the future is done, one of the handle, one of
//! each waker. So no wake and no poll changes the count of a future whose wakers stay.

use super::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

const RUNNING: usize = 1;
const SCHEDULED: usize = 1 << 1;
const DONE: usize = 1 << 2;
const CANCELLED: usize = 1 << 3;
/// Woken by its own poll.
const ITSELF: usize = 1 << 4;
/// The handle exists.
const HANDLE: usize = 1 << 5;
/// The handle's waker is published.
const WAKER: usize = 1 << 6;
const LOST: usize = 1 << 7;
const REFERENCE: usize = 1 << 8;

/// See the module docs.
#[derive(Debug)]
pub struct PollWord(AtomicUsize);

/// What the end of a future means for its output and for the handle's waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollEnded {
    /// There is no handle: the caller drops the output.
    pub drop_output: bool,
    /// The field holds a waker, which is the caller's now: to wake.
    pub wake: bool,
}

/// What a handle leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleLeft {
    /// The future is done, and the output in place is the caller's to drop.
    pub drop_output: bool,
    /// The field holds a waker, which is the caller's to drop.
    pub drop_waker: bool,
}

impl PollWord {
    /// Returns the word of a memory that holds no future.
    pub fn new() -> PollWord {
        PollWord(AtomicUsize::new(DONE))
    }

    /// Begins the life of a future: scheduled, with a handle, and referred to by the scheduler and the handle.
    #[inline]
    pub fn reset(&self) {
        self.0.store(SCHEDULED | HANDLE | (2 * REFERENCE), Relaxed);
    }

    /// Wakes the future; `by_itself` if the caller is its own poll. Returns true if the caller must enqueue it.
    #[inline]
    #[must_use]
    pub fn wake(&self, by_itself: bool) -> bool {
        let mark = if by_itself { SCHEDULED | ITSELF } else { SCHEDULED };
        self.0.fetch_or(mark, AcqRel) & (RUNNING | SCHEDULED | DONE) == 0
    }

    /// Cancels the future. Returns true if the caller must enqueue it. May be called without a reference: it does
    /// nothing to a future that is done.
    #[must_use]
    pub fn cancel(&self) -> bool {
        self.0.fetch_or(CANCELLED | SCHEDULED, AcqRel) & (RUNNING | SCHEDULED | DONE) == 0
    }

    /// Begins a poll of a future that was taken from a queue. Returns false if it was cancelled: then the caller drops
    /// it, and ends it.
    #[inline]
    #[must_use]
    pub fn begin_poll(&self) -> bool {
        let before = self.0.fetch_xor(SCHEDULED | RUNNING, AcqRel);
        debug_assert!(before & (SCHEDULED | RUNNING | DONE) == SCHEDULED, "{before:#x}");
        before & CANCELLED == 0
    }

    /// Returns whether the poll that ends has woken itself. For the poller.
    #[inline]
    pub fn is_woken_by_itself(&self) -> bool {
        self.0.load(Relaxed) & ITSELF != 0
    }

    /// Ends a poll that returned no value. Returns true if the future was woken meanwhile: then the caller enqueues it.
    /// Otherwise anyone may wake and poll it from here on.
    #[inline]
    #[must_use]
    pub fn end_poll(&self) -> bool {
        self.0.fetch_and(!(RUNNING | ITSELF), AcqRel) & SCHEDULED != 0
    }

    /// Ends the future, whose output is in place. For the poller; the future is not polled again.
    #[inline]
    #[must_use]
    pub fn end(&self) -> PollEnded {
        let before = self.0.fetch_xor(RUNNING | DONE, AcqRel);
        debug_assert!(before & (RUNNING | DONE) == RUNNING, "{before:#x}");
        PollEnded {
            drop_output: before & HANDLE == 0,
            wake: before & WAKER != 0 && before & LOST == 0,
        }
    }

    /// The future will not be polled again, unless it is being polled: its handle gets no output. Returns true if the
    /// field holds a waker, which is the caller's now, to wake, with a reference to drop after that. Does nothing to a
    /// future that is done or lost already, and may be called without a reference.
    #[must_use]
    pub fn lose(&self) -> bool {
        let mut seen = self.0.load(Acquire);
        while seen & (DONE | LOST) == 0 {
            let wake = seen & WAKER != 0;
            let after = (seen | LOST) + if wake { REFERENCE } else { 0 };
            match self.0.compare_exchange_weak(seen, after, AcqRel, Acquire) {
                Ok(_) => return wake,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Returns whether the future has ended.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.load(Acquire) & DONE != 0
    }

    /// Returns whether the handle need not wait any longer: the future is done or lost.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.0.load(Acquire) & (DONE | LOST) != 0
    }

    /// Returns whether the future is lost, which the handle prefers to a later end.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.0.load(Acquire) & LOST != 0
    }

    /// Publishes the waker that the handle has put into the field. Returns false if the future is settled: then the
    /// field stays the handle's.
    #[inline]
    #[must_use]
    pub fn publish_waker(&self) -> bool {
        self.flip_waker(0)
    }

    /// Takes the field back for another waker. Returns false if the future is settled: then the waker is no longer the
    /// handle's.
    #[must_use]
    pub fn retract_waker(&self) -> bool {
        self.flip_waker(WAKER)
    }

    /// Returns whether the handle's waker is published. For the handle.
    #[inline]
    pub fn has_waker(&self) -> bool {
        self.0.load(Relaxed) & WAKER != 0
    }

    fn flip_waker(&self, before: usize) -> bool {
        let mut seen = self.0.load(Acquire);
        while seen & (DONE | LOST) == 0 {
            debug_assert!(seen & WAKER == before && seen & HANDLE != 0, "{seen:#x}");
            match self.0.compare_exchange_weak(seen, seen ^ WAKER, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The handle is dropped. Its reference is dropped apart from this.
    #[must_use]
    pub fn leave(&self) -> HandleLeft {
        let mut seen = self.0.load(Acquire);
        loop {
            debug_assert!(seen & HANDLE != 0, "{seen:#x}");
            let is_settled = seen & (DONE | LOST) != 0;
            // A waker of a settled future is the one's who settled it.
            let drop_waker = !is_settled && seen & WAKER != 0;
            let after = seen & !(if drop_waker { HANDLE | WAKER } else { HANDLE });
            match self.0.compare_exchange_weak(seen, after, AcqRel, Acquire) {
                Ok(_) => return HandleLeft { drop_output: seen & DONE != 0, drop_waker },
                Err(now) => seen = now,
            }
        }
    }

    /// Adds a reference.
    #[inline]
    pub fn add_reference(&self) {
        self.0.fetch_add(REFERENCE, Relaxed);
    }

    /// Drops a reference. Returns true if it was the last: then the memory is the caller's.
    #[inline]
    #[must_use]
    pub fn drop_reference(&self) -> bool {
        self.0.fetch_sub(REFERENCE, AcqRel) < 2 * REFERENCE
    }
}

impl Default for PollWord {
    fn default() -> Self {
        PollWord::new()
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize as Count, Ordering};

    /// A future, its queue of at most one entry, and what must happen exactly once.
    struct World {
        word: PollWord,
        queue: Count,
        /// What it waits for.
        input: AtomicBool,
        /// The future and its output: touched by one party at a time.
        future: UnsafeCell<u32>,
        output: UnsafeCell<Option<u32>>,
        waker: UnsafeCell<Option<u32>>,
        joiner_woken: AtomicBool,
        freed: Count,
    }

    impl World {
        fn new() -> Arc<World> {
            let world = World {
                word: PollWord::new(),
                queue: Count::new(1),
                input: AtomicBool::new(false),
                future: UnsafeCell::new(0),
                output: UnsafeCell::new(None),
                waker: UnsafeCell::new(None),
                joiner_woken: AtomicBool::new(false),
                freed: Count::new(0),
            };
            world.word.reset();
            Arc::new(world)
        }

        fn enqueue(&self) {
            assert_eq!(self.queue.fetch_add(1, Ordering::AcqRel), 0, "enqueued twice");
        }

        /// A worker: polls whatever is in the queue. Returns whether the future has ended.
        fn work(&self) -> bool {
            while self.queue.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                if self.word.begin_poll() {
                    self.future.with_mut(|at| unsafe { *at += 1 });
                    if !self.input.load(Ordering::Acquire) {
                        if self.word.end_poll() {
                            self.enqueue();
                        }
                        continue;
                    }
                }
                self.end();
                return true;
            }
            false
        }

        fn end(&self) {
            self.output.with_mut(|at| unsafe { *at = Some(7) });
            let ended = self.word.end();
            if ended.drop_output {
                self.take_output();
            }
            if ended.wake {
                self.take_waker();
                self.joiner_woken.store(true, Ordering::Release);
            }
            self.drop_reference();
        }

        fn take_output(&self) {
            let taken = self.output.with_mut(|at| unsafe { (*at).take() });
            assert_eq!(taken, Some(7), "taken or dropped twice");
        }

        fn take_waker(&self) {
            assert!(self.waker.with_mut(|at| unsafe { (*at).take() }).is_some());
        }

        fn drop_reference(&self) {
            if self.word.drop_reference() {
                assert_eq!(self.freed.fetch_add(1, Ordering::AcqRel), 0, "freed twice");
                // The last owner reaches everything.
                self.future.with_mut(|at| unsafe { *at += 1 });
                self.output.with(|at| unsafe { assert!((*at).is_none()) });
                self.waker.with(|at| unsafe { assert!((*at).is_none()) });
            }
        }

        /// The handle waits once, looks, and is dropped.
        fn join(&self) {
            self.waker.with_mut(|at| unsafe { *at = Some(1) });
            let waits = self.word.publish_waker();
            if !waits {
                self.take_waker();
            }
            if waits && self.word.retract_waker() {
                self.take_waker();
            } else if self.word.is_done() {
                self.take_output_as_handle();
                return;
            }
            let left = self.word.leave();
            if left.drop_output {
                self.take_output();
            }
            if left.drop_waker {
                self.take_waker();
            }
            self.drop_reference();
        }

        fn take_output_as_handle(&self) {
            self.take_output();
            // The output is gone, so `leave` must not be asked to drop it.
            let _ = self.word.leave();
            self.drop_reference();
        }
    }

    /// How many preemptions each model has at most.
    const PREEMPTIONS: usize = 3;

    fn check(
        parties: impl Fn(&Arc<World>) -> Vec<loom::thread::JoinHandle<()>> + Sync + Send + 'static,
    ) {
        check_with(PREEMPTIONS, parties);
    }

    fn check_with(
        preemptions: usize,
        parties: impl Fn(&Arc<World>) -> Vec<loom::thread::JoinHandle<()>> + Sync + Send + 'static,
    ) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let world = World::new();
            let threads = parties(&world);
            let mut ended = world.work();
            for thread in threads {
                thread.join().unwrap();
            }
            ended = world.work() || ended;
            assert!(ended || world.word.is_done(), "a wake was lost");
            assert_eq!(world.freed.load(Ordering::Acquire), 1, "never freed");
        });
    }

    fn spawn(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> loom::thread::JoinHandle<()> {
        let world = world.clone();
        loom::thread::spawn(move || f(&world))
    }

    /// A waker with a reference of its own, which it drops.
    fn wake(world: &World) {
        world.input.store(true, Ordering::Release);
        if world.word.wake(false) {
            world.enqueue();
        }
        world.drop_reference();
    }

    #[test]
    fn a_wake_during_a_poll_leads_to_another_poll() {
        check(|world| {
            world.word.add_reference();
            vec![
                spawn(world, wake),
                spawn(world, |world| {
                    let left = world.word.leave();
                    if left.drop_output {
                        world.take_output();
                    }
                    world.drop_reference();
                }),
            ]
        });
    }

    #[test]
    fn the_handle_gets_the_output_or_drops_it() {
        check(|world| {
            world.word.add_reference();
            vec![spawn(world, wake), spawn(world, World::join)]
        });
    }

    #[test]
    fn a_cancelled_future_ends_once() {
        check(|world| {
            world.word.add_reference();
            vec![
                spawn(world, wake),
                spawn(world, |world| {
                    if world.word.cancel() {
                        world.enqueue();
                    }
                    world.join();
                }),
            ]
        });
    }

    #[test]
    fn two_workers_never_poll_at_once() {
        check(|world| {
            world.word.add_reference();
            vec![
                spawn(world, |world| {
                    wake(world);
                    world.work();
                }),
                spawn(world, World::join),
            ]
        });
    }

    /// A party more than the others have, so a preemption less: ten seconds instead of two minutes.
    #[test]
    fn a_lost_future_may_still_end() {
        check_with(PREEMPTIONS - 1, |world| {
            world.word.add_reference();
            vec![
                spawn(world, wake),
                spawn(world, |world| {
                    if world.word.lose() {
                        world.take_waker();
                        world.drop_reference();
                    }
                }),
                spawn(world, World::join),
            ]
        });
    }
}
