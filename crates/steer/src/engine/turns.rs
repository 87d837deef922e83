//! The order of changes: one change at a time, first come, first served, and one request per user at a time,
//! so that a user waits for at most one change of each other user.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The order of changes.
#[derive(Debug, Default)]
pub struct Turns {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Users with a request under way.
    users: BTreeSet<u32>,
    /// Tickets of those waiting to change something; the current one is first.
    line: VecDeque<u64>,
    next: u64,
}

/// A user's right to one request under way.
#[derive(Debug)]
pub struct UserTurn<'a> {
    turns: &'a Turns,
    uid: u32,
}

/// The right to change something.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        self.changed
            .wait_while(self.inner(), |inner| !until(inner))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until user `uid` has no other request under way. Root never waits.
    pub fn user(&self, uid: u32) -> Option<UserTurn<'_>> {
        if uid == 0 {
            return None;
        }
        self.wait(|inner| !inner.users.contains(&uid)).users.insert(uid);
        Some(UserTurn { turns: self, uid })
    }

    /// Waits for the turn to change something; `first` goes ahead of all waiters.
    pub fn change(&self, first: bool) -> Turn<'_> {
        let mut inner = self.inner();
        let number = inner.next;
        inner.next += 1;
        let at = if first { inner.line.len().min(1) } else { inner.line.len() };
        inner.line.insert(at, number);
        drop(inner);
        drop(self.wait(|inner| inner.line.front() == Some(&number)));
        Turn { turns: self, number }
    }

    /// Takes the turn to change something, if it is free and no thread waits for it.
    pub fn try_change(&self) -> Option<Turn<'_>> {
        let mut inner = self.inner();
        if !inner.line.is_empty() {
            return None;
        }
        let number = inner.next;
        inner.next += 1;
        inner.line.push_back(number);
        Some(Turn { turns: self, number })
    }
}

impl Drop for UserTurn<'_> {
    fn drop(&mut self) {
        self.turns.inner().users.remove(&self.uid);
        self.turns.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.inner().line.retain(|number| *number != self.number);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn waiting(turns: &Turns) -> usize {
        turns.inner().line.len()
    }

    fn until(is: impl Fn() -> bool) {
        while !is() {
            thread::yield_now();
        }
    }

    #[test]
    fn changes_come_in_order_and_evictions_overtake_waiters() {
        let turns = Turns::default();
        let (sender, order) = mpsc::channel();
        thread::scope(|scope| {
            let held = turns.change(false);
            for (n, first) in [(1, false), (2, false), (3, true)] {
                let (sender, turns) = (sender.clone(), &turns);
                scope.spawn(move || {
                    let _turn = turns.change(first);
                    sender.send(n).unwrap();
                });
                until(|| waiting(turns) == n + 1);
            }
            assert!(turns.try_change().is_none());
            drop(held);
        });
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [3, 1, 2]);
        assert!(turns.try_change().is_some());
    }

    #[test]
    fn a_user_has_one_request_under_way_and_delays_no_other_user() {
        let turns = Turns::default();
        let first = turns.user(7);
        let _other = turns.user(8);
        assert!(turns.user(0).is_none() && turns.user(0).is_none());
        thread::scope(|scope| {
            let second = scope.spawn(|| drop(turns.user(7)));
            // It waits as long as the first is under way.
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap();
        });
    }
}
