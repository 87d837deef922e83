//! A party that waits for several events, and the lists in which sources of events keep such parties.
//!
//! The protocol is that of [`ClaimWord`], where it is model-checked.

use crate::sync::waiter::{Limit, Waiter};
use heddle_sync::ClaimWord;
use std::collections::VecDeque;
use std::sync::Arc;

/// How an event claimed a waiting party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The arm with this index may be ready: another look is worth it.
    Notified(usize),
    /// The other side of a rendezvous counts on the arm with this index, which must be completed.
    Committed(usize),
}

impl Claim {
    fn into_token(self) -> usize {
        match self {
            Claim::Notified(arm) => arm << 1,
            Claim::Committed(arm) => arm << 1 | 1,
        }
    }

    fn from_token(token: usize) -> Claim {
        match token & 1 {
            0 => Claim::Notified(token >> 1),
            _ => Claim::Committed(token >> 1),
        }
    }
}

/// One wait of a task or thread for several events.
#[derive(Debug)]
pub struct Selection {
    word: ClaimWord,
    waiter: Waiter,
}

impl Selection {
    pub(crate) fn of_caller() -> Arc<Selection> {
        Arc::new(Selection { word: ClaimWord::new(), waiter: Waiter::current() })
    }

    /// Ends the wait without an event; the claim of one that came before.
    pub(crate) fn give_up(&self) -> Option<Claim> {
        self.word.give_up().map(Claim::from_token)
    }

    /// Parks the caller, to whom it belongs, until an event claims it, within `limit`.
    pub(crate) fn wait(&self, limit: impl Limit) -> Option<Claim> {
        loop {
            if let Some(token) = self.word.claimed() {
                return Some(Claim::from_token(token));
            }
            if !limit.park() {
                return self.give_up();
            }
        }
    }
}

/// The parties that wait for a source of events, in order of arrival; under the lock of the source.
#[derive(Debug, Default)]
pub(crate) struct Selectors(VecDeque<(Arc<Selection>, usize)>);

/// A party that was claimed. It must be woken, preferably without the lock of the source.
#[must_use]
pub(crate) struct Claimed(Option<Waiter>);

impl Claimed {
    /// No party.
    pub(crate) const NONE: Claimed = Claimed(None);

    pub(crate) fn wake(self) {
        if let Some(waiter) = self.0 {
            waiter.notify();
        }
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl Selectors {
    /// Adds `selection`, for which this is the arm with index `arm`.
    pub(crate) fn add(&mut self, selection: &Arc<Selection>, arm: usize) {
        self.0.push_back((selection.clone(), arm));
    }

    pub(crate) fn remove(&mut self, selection: &Arc<Selection>) {
        self.0.retain(|(other, _)| !Arc::ptr_eq(other, selection));
    }

    /// Whether a party other than `selection` can be claimed.
    pub(crate) fn has_other(&self, selection: &Arc<Selection>) -> bool {
        self.0.iter().any(|(other, _)| !Arc::ptr_eq(other, selection) && other.word.is_waiting())
    }

    /// Claims the longest-waiting party to look at its arm again.
    pub(crate) fn notify_one(&mut self) -> Claimed {
        // Almost always empty.
        if self.0.is_empty() { Claimed::NONE } else { self.claim_one(Claim::Notified) }
    }

    /// Claims the longest-waiting party for its arm.
    pub(crate) fn commit_one(&mut self) -> Claimed {
        self.claim_one(Claim::Committed)
    }

    fn claim_one(&mut self, claim: fn(usize) -> Claim) -> Claimed {
        let mut parties = std::iter::from_fn(|| self.0.pop_front());
        let claimed = parties.find(|(party, arm)| party.word.claim(claim(*arm).into_token()));
        Claimed(claimed.map(|(party, _)| party.waiter))
    }

    /// Claims all parties and wakes them.
    pub(crate) fn notify_all(mut self) {
        while !self.0.is_empty() {
            self.notify_one().wake();
        }
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Waiter::Task(_) => "Task",
            Waiter::Thread(_) => "Thread",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_that_gave_up_is_passed_over() {
        let [first, second] = [(); 2].map(|()| Selection::of_caller());
        let mut selectors = Selectors::default();
        selectors.add(&first, 3);
        selectors.add(&second, 5);
        assert_eq!(first.give_up(), None);
        assert!(selectors.commit_one().is_some());
        assert_eq!(second.give_up(), Some(Claim::Committed(5)));
        assert!(!selectors.commit_one().is_some(), "no selector is left");
    }

    #[test]
    fn a_party_in_two_lists_is_claimed_from_one() {
        let party = Selection::of_caller();
        let mut lists = [Selectors::default(), Selectors::default()];
        lists.iter_mut().enumerate().for_each(|(arm, list)| list.add(&party, arm));
        assert!(!lists[0].has_other(&party));
        assert!(lists[0].has_other(&Selection::of_caller()));
        assert!(lists[1].notify_one().is_some());
        assert!(!lists[0].notify_one().is_some());
        assert_eq!(party.wait(None), Some(Claim::Notified(1)));
    }
}
