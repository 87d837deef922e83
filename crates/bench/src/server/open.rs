//! What is open in a server whose handlers block, and how it is brought to an end.
//!
//! Tasks take the lock in a section, since one that is switched out while it holds the lock of a kernel
//! thread's kind would block every worker that wants it.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{DRAIN, Stop};
use crate::store::Section;

/// Shuts down a connection from outside its handler.
pub(super) type Breaker = Box<dyn Fn(Shutdown) + Send>;

/// One open loop or connection; gone when dropped.
pub(super) struct Presence<S: Section> {
    open: Arc<Open>,
    section: S,
    id: u64,
}

impl<S: Section> Presence<S> {
    /// Registers a loop or a connection.
    pub(super) fn enter(open: &Arc<Open>, section: &S, breaker: Breaker) -> Presence<S> {
        let id = section.run(|| open.insert(breaker));
        Presence { open: open.clone(), section: section.clone(), id }
    }
}

impl<S: Section> Drop for Presence<S> {
    fn drop(&mut self) {
        self.section.run(|| self.open.remove(self.id));
    }
}

/// All that is open, and how to break it.
#[derive(Default)]
pub(super) struct Open {
    all: Mutex<Registry>,
    changed: Condvar,
}

#[derive(Default)]
struct Registry {
    next: u64,
    breakers: HashMap<u64, Breaker>,
    stopping: bool,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, breaker: Breaker) -> u64 {
        let mut all = self.lock();
        if all.stopping {
            breaker(Shutdown::Read);
        }
        all.next += 1;
        let id = all.next;
        all.breakers.insert(id, breaker);
        id
    }

    fn remove(&self, id: u64) {
        self.lock().breakers.remove(&id);
        self.changed.notify_all();
    }

    pub(super) fn wait_for_stop(self: &Arc<Self>, stop: &Stop) {
        let open = self.clone();
        stop.on_request(move || {
            open.lock().stopping = true;
            open.changed.notify_all();
        });
        let all = self.lock();
        drop(self.changed.wait_while(all, |all| !all.stopping));
    }

    /// Half closes everything, waits, and cuts what is left.
    pub(super) fn drain(&self) {
        for (how, patience) in [(Shutdown::Read, DRAIN), (Shutdown::Both, Duration::from_secs(1))] {
            let all = self.lock();
            all.breakers.values().for_each(|breaker| breaker(how));
            drop(self.changed.wait_timeout_while(all, patience, |all| !all.breakers.is_empty()));
        }
    }
}
