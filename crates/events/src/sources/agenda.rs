//! When each timer is due: a pure data structure; the time is passed in.
//!
//! - **A1** A timer is never due before its time.
//! - **A2** Timers come due in the order of their times; equal times in the order in which they were set.
//! - **A3** A periodic timer's times are `first + n * every`, however late it is taken: missed expirations
//!   are counted, not shifted.

use heddle_core::Ns;
use std::collections::{BTreeSet, HashMap};

/// A timer.
#[derive(Clone, Copy, Debug)]
struct Timer {
    at: Ns,
    every: Option<Ns>,
    /// Its position among timers of the same time.
    turn: u64,
}

/// All timers of a queue by time. Setting, removing and taking one costs O(log n).
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    order: BTreeSet<(Ns, u64, u64)>,
    timers: HashMap<u64, Timer>,
    turn: u64,
}

impl Agenda {
    /// Sets the timer of `key` to `at` and then every `every`, which is not zero. Replaces what was set
    /// before.
    pub fn set(&mut self, key: u64, at: Ns, every: Option<Ns>) {
        debug_assert_ne!(every, Some(Ns::ZERO), "a period of nothing would never end");
        self.remove(key);
        self.insert(key, at, every);
    }

    fn insert(&mut self, key: u64, at: Ns, every: Option<Ns>) {
        self.turn += 1;
        self.order.insert((at, self.turn, key));
        self.timers.insert(key, Timer { at, every, turn: self.turn });
    }

    /// Removes the timer of `key`. Returns whether there was one.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(timer) = self.timers.remove(&key) else { return false };
        self.order.remove(&(timer.at, timer.turn, key));
        true
    }

    /// Returns the period of the timer of `key`.
    pub fn period(&self, key: u64) -> Option<Ns> {
        self.timers.get(&key)?.every
    }

    /// Returns when the next timer is due.
    pub fn earliest(&self) -> Option<Ns> {
        self.order.first().map(|&(at, _, _)| at)
    }

    /// Takes a timer that is due at `now`. Returns its key and how often it expired since it was last taken.
    /// A periodic timer is due again later.
    pub fn take_due(&mut self, now: Ns) -> Option<(u64, u64)> {
        let &(at, _, key) = self.order.first()?;
        if at > now {
            return None;
        }
        let timer = self.timers[&key];
        self.remove(key);
        let Some(every) = timer.every else { return Some((key, 1)) };
        let times = (now.0 - at.0) / every.0 + 1;
        self.insert(key, Ns(at.0.saturating_add(every.0.saturating_mul(times))), Some(every));
        Some((key, times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u64, u64, Option<u64>),
        Remove(u64),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..8u64, 0..40u64, proptest::option::of(1..15u64))
                .prop_map(|(key, after, every)| Step::Set(key, after, every)),
            1 => (0..8u64).prop_map(Step::Remove),
            3 => (0..60u64).prop_map(Step::Pass),
        ]
    }

    /// The same with a list, one expiration at a time.
    #[derive(Default)]
    struct Reference(Vec<(u64, u64, Option<u64>)>);

    impl Reference {
        fn remove(&mut self, key: u64) -> bool {
            let before = self.0.len();
            self.0.retain(|timer| timer.0 != key);
            self.0.len() < before
        }

        fn earliest(&self) -> Option<u64> {
            self.0.iter().map(|timer| timer.1).min()
        }

        fn take_due(&mut self, now: u64) -> Option<(u64, u64)> {
            let earliest = self.earliest().filter(|&at| at <= now)?;
            let place = self.0.iter().position(|timer| timer.1 == earliest).unwrap();
            let (key, mut at, every) = self.0.remove(place);
            let mut times = 1;
            if let Some(every) = every {
                at += every;
                while at <= now {
                    at += every;
                    times += 1;
                }
                self.0.push((key, at, Some(every)));
            }
            Some((key, times))
        }
    }

    proptest! {
        /// A1, A2, A3.
        #[test]
        fn the_agenda_does_what_a_list_does(steps in proptest::collection::vec(step(), 1..200)) {
            let (mut agenda, mut list, mut now) = (Agenda::default(), Reference::default(), 0);
            for step in steps {
                match step {
                    Step::Set(key, after, every) => {
                        agenda.set(key, Ns(now + after), every.map(Ns));
                        list.remove(key);
                        list.0.push((key, now + after, every));
                    }
                    Step::Remove(key) => prop_assert_eq!(agenda.remove(key), list.remove(key)),
                    Step::Pass(time) => {
                        now += time;
                        loop {
                            let due = agenda.take_due(Ns(now));
                            prop_assert_eq!(due, list.take_due(now));
                            if due.is_none() {
                                break;
                            }
                        }
                    }
                }
                prop_assert_eq!(agenda.earliest(), list.earliest().map(Ns));
                prop_assert_eq!(agenda.order.len(), agenda.timers.len());
            }
        }
    }

    #[test]
    fn times_at_the_end_of_time_do_not_wrap() {
        let mut agenda = Agenda::default();
        agenda.set(1, Ns(5), Some(Ns::MAX));
        assert_eq!(agenda.take_due(Ns(5)), Some((1, 1)));
        assert_eq!(agenda.earliest(), Some(Ns::MAX));
        agenda.set(2, Ns::MAX, None);
        assert_eq!(agenda.take_due(Ns(u64::MAX - 1)), None);
    }
}
