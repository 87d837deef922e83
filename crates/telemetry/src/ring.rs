//! A ring of events, written by one thread at a time and read by others. It overwrites its oldest events: a writer
//! never waits, and a reader finds out what it missed.
//!
//! `position` counts the events ever written; event `n` lies in slot `n % len`. It only grows.
//!
//! - The writer of event `n` fences, stores the words of its slot, and then publishes `n + 1`. Who writes next has seen
//!   that: the lock that writers share, or being the only one, sees to it.
//! - A reader loads the position `end`, copies the slots of the events before it, fences, and loads the position again.
//!   If it copied a word of event `n`, the two fences order the writer's publication of `n` before the second load. So
//!   where that returns `now`, no slot was touched by an event after `now`, and what was copied of events after
//!   `now - len` is whole. The rest is dropped, and counted as lost.
//!
//! Either side may be another program that writes what it likes: positions are used modulo the length only.

use crate::atomic::{AtomicU64, Ordering, fence};

/// The memory of one event.
pub(crate) type Slot = [AtomicU64; 4];

/// Adds an event. `slots` are a power of two.
#[inline(always)]
pub(crate) fn write(position: &AtomicU64, slots: &[Slot], words: [u64; 4]) {
    write_at(position.load(Ordering::Relaxed), position, slots, words);
}

/// [`write()`], for who knows the position.
#[inline(always)]
fn write_at(at: u64, position: &AtomicU64, slots: &[Slot], words: [u64; 4]) {
    fence(Ordering::Release);
    if let Some(slot) = slots.get(at as usize & slots.len().wrapping_sub(1)) {
        slot.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    }
    position.store(at.wrapping_add(1), Ordering::Release);
}

/// What [`read`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The events, in order.
    pub words: Vec<[u64; 4]>,
    /// How many were overwritten before they could be read.
    pub lost: u64,
    /// Where to go on.
    pub next: u64,
}

/// Copies the events from number `from` on.
pub(crate) fn read(position: &AtomicU64, slots: &[Slot], from: u64) -> Copied {
    let (len, end) = (slots.len() as u64, position.load(Ordering::Acquire));
    if from > end || len == 0 {
        // The position never goes back by itself.
        return Copied { next: end, ..Copied::default() };
    }
    let begin = from.max(end.saturating_sub(len));
    let slot = |at: u64| &slots[(at % len) as usize];
    let copy = |at| slot(at).each_ref().map(|word| word.load(Ordering::Relaxed));
    let mut words: Vec<_> = (begin..end).map(copy).collect();
    fence(Ordering::Acquire);
    let now = position.load(Ordering::Relaxed);
    // The slot of `now` may be half written.
    let whole = now.saturating_add(1).saturating_sub(len).clamp(begin, end);
    words.drain(..(whole - begin) as usize);
    Copied { words, lost: whole - from, next: end }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(len: usize) -> (AtomicU64, Vec<Slot>) {
        (AtomicU64::new(0), (0..len).map(|_| Slot::default()).collect())
    }

    proptest! {
        #[test]
        fn what_is_read_and_what_is_lost_make_up_what_was_written(
            bursts in proptest::collection::vec(0..20u64, 0..20), power in 0..5u32,
        ) {
            let (position, slots) = ring(1 << power);
            let (mut written, mut next) = (0, 0);
            for burst in bursts {
                for _ in 0..burst {
                    write(&position, &slots, [written; 4]);
                    written += 1;
                }
                let copied = read(&position, &slots, next);
                let kept = burst.min((1 << power) - 1);
                prop_assert_eq!(copied.lost, burst - kept);
                let expected: Vec<_> = (written - kept..written).map(|n| [n; 4]).collect();
                prop_assert_eq!(copied.words, expected);
                next = copied.next;
            }
        }

        #[test]
        fn any_position_is_read_without_harm(first in any::<u64>(), from in any::<u64>()) {
            let (position, slots) = ring(8);
            position.store(first, Ordering::Relaxed);
            let copied = read(&position, &slots, from);
            prop_assert!(copied.words.len() <= 8 && copied.next == first);
            write(&position, &slots, [1; 4]);
        }
    }

    /// Both at once: a reader never sees half of an event.
    #[test]
    fn events_are_whole_while_they_are_overwritten() {
        const WRITTEN: u64 = 200_000;
        let (position, slots) = ring(16);
        let (mut seen, mut lost, mut next) = (0, 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..WRITTEN).for_each(|n| write(&position, &slots, [n; 4])));
            while next < WRITTEN {
                let copied = read(&position, &slots, next);
                let first = next + copied.lost;
                let expected = (first..copied.next).map(|n| [n; 4]);
                assert!(copied.words.iter().copied().eq(expected), "{copied:?}");
                (seen, lost, next) =
                    (seen + copied.words.len() as u64, lost + copied.lost, copied.next);
            }
        });
        assert_eq!(seen + lost, WRITTEN);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    /// A writer overwrites while a reader copies: what the reader keeps is whole, and it knows what it missed.
    #[test]
    fn a_reader_keeps_whole_events_only() {
        loom::model(|| {
            let ring = Arc::new((AtomicU64::new(0), [(); 2].map(|()| Slot::default())));
            let writer = ring.clone();
            let thread = loom::thread::spawn(move || {
                // Loom looks for a rival of an access at the last one only, which must not be the writer's own load.
                (0..3).for_each(|n| write_at(n, &writer.0, &writer.1, [n + 1; 4]));
            });
            let mut next = 0;
            for _ in 0..2 {
                let copied = read(&ring.0, &ring.1, next);
                let first = next + copied.lost;
                assert_eq!(copied.words.len() as u64 + first, copied.next);
                let mut number = first;
                for words in copied.words {
                    number += 1;
                    assert_eq!(words, [number; 4]);
                }
                next = copied.next;
            }
            thread.join().unwrap();
        });
    }
}
