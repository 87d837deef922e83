//! The word by which one of several events claims a party that waits for all of them.
//!
//! ```text
//! WAITING --claim(token)--> CLAIMED(token)   one event, once: the party completes what the token names
//!    |
//!    +-------give_up------> GIVEN_UP         the party leaves: its time is up, or it has found something by itself
//! ```
//!
//! Both transitions leave WAITING by one exchange, so exactly one event wins or none does. A source of events keeps its
//! waiting parties in a list under its own lock. To report one event, it takes parties out of the list until a claim
//! succeeds; a party whose claim fails has been claimed by another event or has given up, and needs no wake-up. So each
//! event reaches one party that can use it, and no wake-up need be passed on. A party that fails to give up has been
//! claimed, and must complete that event first.

use super::atomic::{AtomicUsize, Ordering};

const WAITING: usize = 0;
const GIVEN_UP: usize = 1;
const FIRST_TOKEN: usize = 2;

/// See the module docs.
#[derive(Debug)]
pub struct ClaimWord(AtomicUsize);

impl Default for ClaimWord {
    fn default() -> Self {
        ClaimWord::new()
    }
}

impl ClaimWord {
    /// Returns the word of a waiting party.
    pub fn new() -> ClaimWord {
        ClaimWord(AtomicUsize::new(WAITING))
    }

    /// Claims the party. Returns true for at most one caller, which then wakes it. What the caller did before is
    /// visible to the party once it sees the claim. `token` is below `usize::MAX - 1`.
    #[must_use]
    pub fn claim(&self, token: usize) -> bool {
        self.leave_waiting(FIRST_TOKEN + token).is_ok()
    }

    /// Returns the token of the event that claimed the party, if any.
    pub fn claimed(&self) -> Option<usize> {
        self.0.load(Ordering::Acquire).checked_sub(FIRST_TOKEN)
    }

    /// Returns whether the party can still be claimed; may be stale.
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WAITING
    }

    /// Called by the party to stop waiting. Returns the token if an event has already claimed it.
    #[must_use]
    pub fn give_up(&self) -> Option<usize> {
        match self.leave_waiting(GIVEN_UP) {
            Ok(_) => None,
            Err(word) => word.checked_sub(FIRST_TOKEN),
        }
    }

    fn leave_waiting(&self, to: usize) -> Result<usize, usize> {
        self.0.compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread::{self, Thread};
    use std::collections::VecDeque;

    /// A waiting party, in the lists of all its sources.
    struct Party {
        word: ClaimWord,
        thread: Thread,
    }

    /// A channel: values, and parties that wait for one.
    #[derive(Default)]
    struct Source(Mutex<(usize, VecDeque<(Arc<Party>, usize)>)>);

    impl Source {
        fn put(&self) {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            while let Some((party, token)) = state.1.pop_front() {
                if party.word.claim(token) {
                    party.thread.unpark();
                    break;
                }
            }
        }

        fn take(&self) -> bool {
            let mut state = self.0.lock().unwrap();
            let found = state.0 > 0;
            state.0 -= usize::from(found);
            found
        }

        /// Returns false if there is something to take instead.
        fn register(&self, party: &Arc<Party>, token: usize) -> bool {
            let mut state = self.0.lock().unwrap();
            let waits = state.0 == 0;
            if waits {
                state.1.push_back((party.clone(), token));
            }
            waits
        }

        fn unregister(&self, party: &Arc<Party>) {
            self.0.lock().unwrap().1.retain(|(other, _)| !Arc::ptr_eq(party, other));
        }
    }

    /// Takes a value from either source, as the runtime's `select` does. Loom reports a deadlock if a wake-up is lost.
    fn select(sources: &[Source; 2]) {
        while !sources.iter().any(Source::take) {
            let party = Arc::new(Party { word: ClaimWord::new(), thread: thread::current() });
            let all_wait = sources.iter().enumerate().all(|(i, s)| s.register(&party, i));
            let claim = if all_wait { Some(wait(&party)) } else { party.word.give_up() };
            sources.iter().for_each(|source| source.unregister(&party));
            if claim.is_some_and(|i| sources[i].take()) {
                return;
            }
        }
    }

    fn wait(party: &Party) -> usize {
        loop {
            if let Some(token) = party.word.claimed() {
                return token;
            }
            thread::park();
        }
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// The second value may arrive while the only waiting party has just been claimed for the first.
    #[test]
    fn each_of_two_values_reaches_one_of_two_selecting_parties() {
        check(|| {
            let sources = Arc::new(<[Source; 2]>::default());
            let (theirs, puts) = (sources.clone(), sources.clone());
            let other = thread::spawn(move || select(&theirs));
            let putter = thread::spawn(move || puts.iter().for_each(Source::put));
            select(&sources);
            other.join().unwrap();
            putter.join().unwrap();
            assert!(!sources.iter().any(Source::take), "a value was taken twice or none at all");
        });
    }

    /// A party that gives up just as it is claimed completes the event, so the value reaches it or stays for another.
    #[test]
    fn a_claim_that_races_with_giving_up_is_seen_by_the_party() {
        check(|| {
            let sources = Arc::new(<[Source; 2]>::default());
            let puts = sources.clone();
            let party = Arc::new(Party { word: ClaimWord::new(), thread: thread::current() });
            assert!(sources[0].register(&party, 0) && sources[1].register(&party, 1));
            let putters = [0, 1].map(|i| {
                let puts = puts.clone();
                thread::spawn(move || puts[i].put())
            });
            let claim = party.word.give_up();
            sources.iter().for_each(|source| source.unregister(&party));
            if let Some(token) = claim {
                assert!(sources[token].take(), "the claim came with a value");
            }
            putters.into_iter().for_each(|putter| putter.join().unwrap());
            let left = sources.iter().filter(|source| source.take()).count();
            assert_eq!(left, 2 - usize::from(claim.is_some()));
        });
    }
}
