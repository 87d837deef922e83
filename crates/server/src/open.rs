//! The open loops and connections of a server with one handler per connection. All are shut down at the stop;
//! a connection that hits a limit is shut down earlier.
//!
//! Tasks take the lock inside a section: a task that is switched out while it holds a kernel-thread lock
//! would block every worker that wants it.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limits::{Bounds, LastSweep, Limit, Watch};
use super::{DRAIN, Stop};
use heddle_store::Section;

/// Shuts down a connection from outside its handler.
pub(super) type Breaker = Box<dyn Fn(Shutdown) + Send>;

/// One open loop or connection; unregistered when dropped.
pub(super) struct Presence<S: Section> {
    open: Arc<Open>,
    section: S,
    id: u64,
    watch: Arc<Watch>,
}

impl<S: Section> Presence<S> {
    /// Registers a loop or a connection.
    pub(super) fn enter(open: &Arc<Open>, section: &S, breaker: Breaker) -> Presence<S> {
        let watch = Arc::new(Watch::default());
        watch.works();
        let one = One { breaker, watch: watch.clone(), seen: LastSweep::default() };
        let id = section.run(|| open.insert(one));
        Presence { open: open.clone(), section: section.clone(), id, watch }
    }

    /// The handler records here what it waits for; nothing at first.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Shuts it down, as another thread would.
    pub(super) fn shut(&self, how: Shutdown) {
        self.section.run(|| self.open.shut(self.id, how));
    }
}

impl<S: Section> Drop for Presence<S> {
    fn drop(&mut self) {
        self.section.run(|| self.open.remove(self.id));
    }
}

/// One open loop or connection.
struct One {
    breaker: Breaker,
    watch: Arc<Watch>,
    seen: LastSweep,
}

/// All open loops and connections, and how to break them.
#[derive(Default)]
pub(super) struct Open {
    all: Mutex<Registry>,
    changed: Condvar,
}

#[derive(Default)]
struct Registry {
    next: u64,
    open: HashMap<u64, One>,
    stopping: bool,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, one: One) -> u64 {
        let mut all = self.lock();
        if all.stopping {
            (one.breaker)(Shutdown::Read);
        }
        all.next += 1;
        let id = all.next;
        all.open.insert(id, one);
        id
    }

    fn remove(&self, id: u64) {
        self.lock().open.remove(&id);
        self.changed.notify_all();
    }

    fn shut(&self, id: u64, how: Shutdown) {
        if let Some(one) = self.lock().open.get(&id) {
            (one.breaker)(how);
        }
    }

    /// Ends connections that have hit a limit.
    pub(super) fn sweep(&self, bounds: &Bounds) {
        let now = Instant::now();
        for one in self.lock().open.values_mut() {
            match one.seen.look(&one.watch, now, bounds) {
                None => {}
                // The handler reads the end of file and can send a last reply.
                Some(Limit::Request | Limit::Idle) => (one.breaker)(Shutdown::Read),
                Some(_) => (one.breaker)(Shutdown::Both),
            }
        }
        bounds.report_hits(now);
    }

    /// Waits for the stop; meanwhile ends connections that hit a limit.
    pub(super) fn wait_for_stop(self: &Arc<Self>, stop: &Stop, bounds: &Bounds) {
        let open = self.clone();
        stop.on_request(move || {
            open.lock().stopping = true;
            open.changed.notify_all();
        });
        let mut next = Instant::now();
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout_while(self.lock(), left, |all| !all.stopping);
            let (all, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            drop(all);
            if !waited.timed_out() {
                return;
            }
            self.sweep(bounds);
            next = Instant::now() + bounds.limits.period();
        }
    }

    /// Half-closes everything, waits, and cuts what is left.
    pub(super) fn drain(&self) {
        for (how, patience) in [(Shutdown::Read, DRAIN), (Shutdown::Both, Duration::from_secs(1))] {
            let all = self.lock();
            all.open.values().for_each(|one| (one.breaker)(how));
            drop(self.changed.wait_timeout_while(all, patience, |all| !all.open.is_empty()));
        }
    }
}
