//! The handle of the control thread.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use heddle_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, getpid};

use super::asked::{Asked, Asking};
use super::counters::{Counters, Counts, add};
use super::mirror::{Mirror, Stale};
use super::netlink::{Events, Requests};
use super::thread::ControlThread;
use super::{ControlError, Snapshot, support};

/// A function that is called after a change.
type Hook = Arc<dyn Fn(&Snapshot) + Send + Sync>;

/// The generation of the first snapshot. A sender without one may use 0.
const FIRST: u64 = 1;

/// Follows the kernel's configuration of one interface, on a thread of its own.
///
/// Dropping it stops the thread and removes the neighbour entries that it added. A child of `fork` has no such thread:
/// there, dropping it does nothing.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    asking: Arc<Asking>,
    thread: Option<JoinHandle<()>>,
    process: Pid,
}

/// What the handle and the thread share.
pub(super) struct Shared {
    generation: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
    hooks: Mutex<Vec<Hook>>,
    stop: AtomicU32,
    pub(super) wake: OwnedFd,
    pub(super) counts: Counts,
}

impl Control {
    /// Starts to follow `interface`, in the network namespace of the calling thread. The first snapshot is complete
    /// when this returns.
    ///
    /// Reading needs no privilege; without CAP_NET_ADMIN, [`Control::resolve`] achieves nothing and is counted.
    ///
    /// # Errors
    /// [`ControlError::NoInterface`], [`ControlError::Unsupported`] for interfaces over or under another one, and what
    /// the kernel answers.
    pub fn start(interface: &str) -> Result<Self, ControlError> {
        let netlink = |action| {
            move |source| ControlError::Netlink { interface: interface.to_owned(), action, source }
        };
        let no_thread = |source| ControlError::Thread { interface: interface.to_owned(), source };
        // Subscribed before anything is read, so that no change is missed.
        let events = Events::open().map_err(netlink("follow the changes"))?;
        let mut requests = Requests::open().map_err(netlink("read the state"))?;
        let links = requests.links().map_err(netlink("read the state"))?;
        let link = support::find(interface, &links)?;

        let counts = Counts::default();
        let mut mirror = Mirror::new(requests, link.index);
        let mut stale = Stale::ALL;
        let read = mirror.refresh(&mut stale, &counts);
        read.map_err(|(table, source)| netlink(table.action())(source))?;
        mirror.take_changed();

        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(|errno| no_thread(errno.into()))?;
        let shared = Arc::new(Shared::new(mirror.snapshot(FIRST), counts, wake));
        let (asking, queue) = Asking::new();
        let asking = Arc::new(asking);
        let run = ControlThread::new(
            Arc::clone(&shared),
            Arc::clone(&asking),
            queue,
            events,
            mirror,
            stale,
        );
        let builder = thread::Builder::new().name("heddle-control".into());
        let thread = Some(builder.spawn(move || run.run()).map_err(no_thread)?);
        Ok(Self { shared, asking, thread, process: getpid() })
    }

    /// Returns the number of the newest snapshot: one relaxed load. A sender compares it with that of the snapshot it
    /// has ([`Snapshot::generation`]) and fetches the newest only if they differ.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Relaxed)
    }

    /// Returns the newest snapshot. It takes a mutex for the time of copying a pointer.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.shared.current))
    }

    /// Asks the kernel to resolve a neighbour, and to keep its address valid from then on. Never blocks: the request
    /// goes into a queue, and is dropped and counted if that is full, or if it was made before and nothing has changed.
    ///
    /// A sender calls it for each next hop whose address is unknown or not maintained ([`Snapshot::is_maintained`]),
    /// as often as it likes. A task that waits for the answer looks at [`Snapshot::resolution`] again when
    /// [`Control::generation`] has changed.
    pub fn resolve(&self, next_hop: IpAddr) {
        match self.asking.ask(next_hop.to_canonical()) {
            Asked::Queued => self.shared.wake_up(),
            Asked::Repeated => add(&self.shared.counts.repeated),
            Asked::Full => add(&self.shared.counts.queue_full),
        }
    }

    /// Calls `hook` after each change from now on, on the control thread, with the new snapshot. It must not block for
    /// long: other changes wait. Changes before the call are not reported, so read [`Control::snapshot`] after it.
    pub fn on_change(&self, hook: Box<dyn Fn(&Snapshot) + Send + Sync>) {
        lock(&self.shared.hooks).push(hook.into());
    }

    /// Returns what was done since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counts.read()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if getpid() != self.process {
            // The thread is the parent's, and the wake-up would be, too.
            std::mem::forget(thread);
            return;
        }
        self.shared.stop.store(1, Ordering::Release);
        self.shared.wake_up();
        // A hook may have owned the last handle; then this is the thread itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(first: Snapshot, counts: Counts, wake: OwnedFd) -> Self {
        Self {
            generation: AtomicU64::new(first.generation),
            current: Mutex::new(Arc::new(first)),
            hooks: Mutex::default(),
            stop: AtomicU32::new(0),
            wake,
            counts,
        }
    }

    pub(super) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire) != 0
    }

    /// Publishes what `make` makes of the next generation, and calls the hooks.
    pub(super) fn publish(&self, make: impl FnOnce(u64) -> Snapshot) {
        let snapshot = {
            let mut current = lock(&self.current);
            *current = Arc::new(make(current.generation + 1));
            // Inside of the lock: a sender that sees the new number cannot get an older snapshot.
            self.generation.store(current.generation, Ordering::Relaxed);
            Arc::clone(&current)
        };
        add(&self.counts.changes);
        // Without the lock: a hook may add another one.
        let hooks = lock(&self.hooks).clone();
        hooks.iter().for_each(|hook| hook(&snapshot));
    }

    fn wake_up(&self) {
        // It fails only if the counter is at its limit, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Locks a mutex whose content is right even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
