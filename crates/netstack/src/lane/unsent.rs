//! Frames that wait to be sent together.
//!
//! In copy mode sending is a system call in which the kernel runs the whole way to the receiver. One for each call of
//! each task costs more than the entries into the kernel: the two evict each other from the caches. So a call whose
//! caller knows that more calls follow soon leaves its frames to them, as with `MSG_MORE`. They are sent by the first
//! call after which no other is expected, if there are [`MOST`] of them, [`LONGEST`] after the first, or where a
//! thread has nothing better to do ([`super::Lane::send_waiting`]).
//!
//! "Soon" is a guess: the next task may compute for a millisecond. How long frames did wait is seen when they are sent.
//! If it was too long, frames of the next calls do not wait: of few calls the first time, of twice as many each further
//! time, so that where the guess is often wrong hardly any frame is late.

use heddle_core::Ns;
use heddle_sync::Deferred;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Frames that wait, at most: as many as a kernel sends by one system call.
const MOST: u32 = 32;

/// How long a call lets frames wait for others.
const LONGEST: Ns = Ns::from_us(20);

/// Frames that have waited for longer are late.
const LATE: Ns = Ns::from_us(50);

/// Calls whose frames do not wait after some were late: at least, and at most.
const PAUSE: (u32, u32) = (64, 1 << 16);

/// Times in a row that no frame is late until the next pause is shorter.
const GOOD: u32 = 16;

/// Frames that were made visible, by queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Published {
    /// The queues, as bits.
    pub(super) queues: u128,
    pub(super) frames: u32,
}

/// See the module. Calls add to it under the lane's lock; any thread takes from it.
#[derive(Debug)]
pub(super) struct Unsent {
    /// Frames, by queue.
    frames: Deferred,
    /// When the first was added.
    since: AtomicU64,
    /// Calls left whose frames do not wait.
    pause: AtomicU32,
    /// The length of the next pause.
    next_pause: AtomicU32,
    /// How often in a row no frame was late.
    good: AtomicU32,
}

impl Unsent {
    pub(super) fn new() -> Unsent {
        Unsent {
            frames: Deferred::default(),
            since: AtomicU64::new(0),
            pause: AtomicU32::new(0),
            next_pause: AtomicU32::new(PAUSE.0),
            good: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.amount() == 0
    }

    /// Adds frames of a call, after which `more` follow soon or not. Returns the queues to be sent from now: none if
    /// the frames wait. The caller holds the lane's lock.
    pub(super) fn add(&self, published: Published, more: bool, now: impl FnOnce() -> Ns) -> u128 {
        if published.frames == 0 {
            return 0;
        }
        let before = self.frames.amount();
        if before == 0 && !(more && self.may_wait()) {
            return published.queues;
        }
        let now = now();
        if before == 0 {
            self.since.store(now.0, Ordering::Relaxed);
        }
        self.put_back(published);
        let waits = more && before + published.frames < MOST && now - self.since() < LONGEST;
        if waits { 0 } else { self.take(now) }
    }

    /// Adds frames that cannot be sent now.
    pub(super) fn put_back(&self, published: Published) {
        self.frames.put(published.queues, published.frames);
    }

    /// Takes all. Returns the queues to be sent from.
    pub(super) fn take(&self, now: Ns) -> u128 {
        let queues = self.frames.take();
        if queues != 0 {
            self.judge(now - self.since());
        }
        queues
    }

    fn since(&self) -> Ns {
        Ns(self.since.load(Ordering::Relaxed))
    }

    /// Returns whether the frames of a call may wait.
    fn may_wait(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause != 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// Learns from frames that have `waited`. Threads that do so at once may miss one case or the other.
    fn judge(&self, waited: Ns) {
        let next_pause = self.next_pause.load(Ordering::Relaxed);
        if waited > LATE {
            self.pause.store(next_pause, Ordering::Relaxed);
            self.next_pause.store((2 * next_pause).min(PAUSE.1), Ordering::Relaxed);
            self.good.store(0, Ordering::Relaxed);
            return;
        }
        let good = self.good.load(Ordering::Relaxed) + 1;
        if good == GOOD {
            self.next_pause.store((next_pause / 2).max(PAUSE.0), Ordering::Relaxed);
        }
        self.good.store(good % GOOD, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Published = Published { queues: 1, frames: 1 };

    fn us(us: u64) -> impl FnOnce() -> Ns {
        move || Ns::from_us(us)
    }

    #[test]
    fn frames_wait_for_the_call_after_which_none_follows() {
        let unsent = Unsent::new();
        assert_eq!(unsent.add(ONE, false, || panic!("no frame waits")), 1);
        assert_eq!(unsent.add(ONE, true, us(1)), 0);
        assert_eq!(unsent.add(Published::default(), false, us(2)), 0, "a call without frames");
        assert!(!unsent.is_empty());
        let other = Published { queues: 1 << 100, frames: 2 };
        assert_eq!(unsent.add(other, false, us(3)), 1 | 1 << 100);
        assert!(unsent.is_empty());
        assert_eq!(unsent.take(Ns::from_us(4)), 0);
    }

    #[test]
    fn many_frames_and_old_ones_wait_no_longer() {
        let unsent = Unsent::new();
        let sent = |at| unsent.add(ONE, true, us(at)) != 0;
        assert_eq!((0..u64::from(MOST)).position(|_| sent(1)), Some(MOST as usize - 1));
        assert!(!sent(100) && !sent(119) && sent(120));
        let many = Published { queues: 2, frames: 1000 };
        assert_eq!(unsent.add(many, true, us(200)), 2);
    }

    #[test]
    fn frames_do_not_wait_for_a_while_after_some_were_late() {
        let unsent = Unsent::new();
        let mut at = 0;
        // How many calls do not wait after a frame that waits for `us`.
        let mut after = |wait: u64| {
            assert_eq!(unsent.add(ONE, true, us(at)), 0);
            at += wait;
            assert_eq!(unsent.take(Ns::from_us(at)), 1);
            let pause = (0..).find(|_| unsent.add(ONE, true, us(at)) == 0);
            unsent.take(Ns::from_us(at));
            pause.unwrap()
        };
        assert_eq!((after(50), after(51), after(51), after(51)), (0, 64, 128, 256));
        // Each comes with a second one: in time, too.
        assert!((0..GOOD / 2).all(|_| after(1) == 0));
        assert_eq!(after(51), 256);
        assert_eq!((0..12).map(|_| after(51)).last(), Some(PAUSE.1));
    }
}
