//! The handle of the control thread.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use heddle_sync::atomic::{AtomicU64, Ordering};

use super::counters::{Counters, Counts};
use super::{ControlError, Snapshot};

/// A function that is called after a change.
type Hook = Arc<dyn Fn(&Snapshot) + Send + Sync>;

/// Follows the kernel's configuration of one interface, on a thread of its own.
///
/// Dropping it stops the thread and removes the neighbour entries that it added.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

/// What the handle and the thread share.
pub(super) struct Shared {
    generation: AtomicU64,
    current: Mutex<Arc<Snapshot>>,
    hooks: Mutex<Vec<Hook>>,
    pub(super) counts: Counts,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Control {
    /// Starts to follow `interface`, in the network namespace of the calling thread. The first snapshot is complete
    /// when this returns.
    ///
    /// # Errors
    /// [`ControlError::NoInterface`], [`ControlError::Unsupported`] for interfaces over or under another one, and what
    /// the kernel answers.
    pub fn start(interface: &str) -> Result<Self, ControlError> {
        let existing = String::new();
        Err(ControlError::NoInterface { interface: interface.to_owned(), existing })
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
        Arc::clone(&self.shared.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the kernel to resolve a neighbour, and to keep its address valid from then on. Never blocks: the request
    /// goes into a queue, and is dropped and counted if that is full, or if it was just made.
    ///
    /// A sender calls it for each next hop whose address is unknown or not maintained ([`Snapshot::is_maintained`]),
    /// as often as it likes. A task that waits for the answer looks at [`Snapshot::resolution`] again when
    /// [`Control::generation`] has changed.
    pub fn resolve(&self, next_hop: IpAddr) {
        let _ = next_hop;
    }

    /// Calls `hook` after each change from now on, on the control thread, with the new snapshot. It must not block for
    /// long: other changes wait. Changes before the call are not reported, so read [`Control::snapshot`] after it.
    pub fn on_change(&self, hook: Box<dyn Fn(&Snapshot) + Send + Sync>) {
        self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(hook.into());
    }

    /// Returns what was done since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counts.read()
    }
}
