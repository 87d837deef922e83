//! Limits on connections, per user and in total.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of all users together.
const MAX_CONNECTIONS: usize = 256;
/// Of those, connections reserved for root.
const RESERVED_FOR_ROOT: usize = MAX_CONNECTIONS / 8;

/// The connections of each user.
#[derive(Debug)]
pub struct ConnectionPermits {
    taken: Mutex<BTreeMap<u32, usize>>,
    per_user: usize,
}

/// The right to one connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    permits: Arc<ConnectionPermits>,
    uid: u32,
}

impl ConnectionPermits {
    /// Allows at most `per_user` for each user, capped at a quarter of all.
    pub fn new(per_user: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), per_user: per_user.min(MAX_CONNECTIONS / 4) })
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a permit for user `uid`, if the limits allow. The last ones are reserved for root.
    pub fn take(self: &Arc<Self>, uid: u32) -> Option<ConnectionPermit> {
        let mut taken = self.taken();
        let together: usize = taken.values().sum();
        let most = if uid == 0 { MAX_CONNECTIONS } else { MAX_CONNECTIONS - RESERVED_FOR_ROOT };
        let own = taken.entry(uid).or_default();
        if together >= most || (uid != 0 && *own >= self.per_user) {
            return None;
        }
        *own += 1;
        Some(ConnectionPermit { permits: Arc::clone(self), uid })
    }

    /// Returns how many are held.
    pub fn held(&self) -> usize {
        self.taken().values().sum()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.permits.taken();
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
    fn one_user_cannot_exhaust_the_permits_and_users_cannot_take_roots() {
        let permits = ConnectionPermits::new(2);
        let first = permits.take(7).expect("a permit");
        let _second = permits.take(7).expect("a permit");
        assert!(permits.take(7).is_none());
        assert!(permits.take(8).is_some());
        drop(first);
        let mut held = vec![permits.take(7).expect("free again")];
        held.extend((100..).map_while(|uid| permits.take(uid)));
        assert_eq!(permits.held(), MAX_CONNECTIONS - MAX_CONNECTIONS / 8);
        assert!(permits.take(0).is_some());
    }
}
