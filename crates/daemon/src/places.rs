//! How many connections there are, of each user and together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of all users together.
const MAX_TOGETHER: usize = 256;
/// The last of them, which are root's.
const KEPT_FOR_ROOT: usize = MAX_TOGETHER / 8;

/// Who is connected.
#[derive(Debug)]
pub struct Places {
    taken: Mutex<BTreeMap<u32, usize>>,
    of_one: usize,
}

/// The right to one connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    places: Arc<Places>,
    uid: u32,
}

impl Places {
    /// At most `of_one` for each user, who has at most a quarter of all.
    pub fn new(of_one: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), of_one: of_one.min(MAX_TOGETHER / 4) })
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One for user `uid`, if he has not too many. The last are kept for root.
    pub fn take(self: &Arc<Self>, uid: u32) -> Option<ConnectionPermit> {
        let mut taken = self.taken();
        let together: usize = taken.values().sum();
        let most = if uid == 0 { MAX_TOGETHER } else { MAX_TOGETHER - KEPT_FOR_ROOT };
        let own = taken.entry(uid).or_default();
        if together >= most || (uid != 0 && *own >= self.of_one) {
            return None;
        }
        *own += 1;
        Some(ConnectionPermit { places: Arc::clone(self), uid })
    }

    /// How many there are.
    pub fn together(&self) -> usize {
        self.taken().values().sum()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(own) = taken.get_mut(&self.uid) {
            *own -= 1;
        }
        taken.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_all_and_users_cannot_take_roots() {
        let places = Places::new(2);
        let first = places.take(7).expect("a place");
        let _second = places.take(7).expect("a place");
        assert!(places.take(7).is_none());
        assert!(places.take(8).is_some());
        drop(first);
        let mut held = vec![places.take(7).expect("free again")];
        held.extend((100..).map_while(|uid| places.take(uid)));
        assert_eq!(places.together(), MAX_TOGETHER - MAX_TOGETHER / 8);
        assert!(places.take(0).is_some());
    }
}
