//! How many connections there are, of each user and together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use heddle_steer::client::wire::MAX_FDS;

/// Connections of all users together, where there are descriptors enough.
const MAX_TOGETHER: usize = 256;
/// Descriptors that a connection may hold: a message's, copies of those, and what a request opens.
const FDS: usize = 2 * MAX_FDS + 64;
/// Descriptors that are for everything else.
const RESERVED: usize = 256;

/// Who is connected.
#[derive(Debug)]
pub struct Places {
    taken: Mutex<BTreeMap<u32, usize>>,
    of_one: usize,
    together: usize,
}

/// The right to one connection.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    uid: u32,
}

impl Places {
    /// At most `of_one` for each user, and no more than `fds` descriptors suffice for: however many a client sends, no other
    /// meets a daemon that can open nothing. One user has at most a quarter of all.
    pub fn new(of_one: usize, fds: usize) -> Arc<Self> {
        let together = (fds.saturating_sub(RESERVED) / FDS).clamp(4, MAX_TOGETHER);
        Arc::new(Self { taken: Mutex::default(), of_one: of_one.min(together / 4), together })
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One for user `uid`, if he has not too many. The last eighth of all is kept for root.
    pub fn take(self: &Arc<Self>, uid: u32) -> Option<Place> {
        let mut taken = self.taken();
        let together: usize = taken.values().sum();
        let kept = (self.together / 8).max(1);
        let most = if uid == 0 { self.together } else { self.together - kept };
        let own = taken.entry(uid).or_default();
        if together >= most || (uid != 0 && *own >= self.of_one) {
            return None;
        }
        *own += 1;
        Some(Place { places: Arc::clone(self), uid })
    }

    /// How many there are.
    pub fn together(&self) -> usize {
        self.taken().values().sum()
    }
}

impl Drop for Place {
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
        let places = Places::new(2, usize::MAX);
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

    #[test]
    fn few_descriptors_are_few_places_and_some_are_root_s_even_then() {
        let places = Places::new(16, 1024);
        let held: Vec<_> = (1..100).map_while(|uid| places.take(uid)).collect();
        assert!(!held.is_empty() && RESERVED + (held.len() + 1) * FDS <= 1024 + 2 * FDS);
        assert!(places.take(0).is_some());
        let places = Places::new(16, 20_000);
        let held: Vec<_> = (0..100).map_while(|_| places.take(7)).collect();
        assert!(held.len() <= places.together / 4 && RESERVED + places.together * FDS <= 20_000);
    }
}
