//! Orders to agents.

use super::EndReason;
use crate::Backend;
use crate::model::QueueId;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends agents. Clones control the same agents, from any thread.
#[derive(Clone, Default)]
pub struct Control(Arc<Inner>);

#[derive(Default)]
struct Inner {
    order: AtomicU8,
    /// Queues on which agents may sleep.
    queues: Mutex<Vec<(Arc<dyn Backend>, QueueId)>>,
}

const LEAVE: u8 = 1;
const STOP: u8 = 2;

impl Control {
    /// Makes the agents finish their round and detach in favour of a successor; threads stay where they are.
    pub fn leave(&self) {
        self.order(LEAVE);
    }

    /// Makes the agents finish their round and end. The backend or the guardian decides what happens to the
    /// threads.
    pub fn stop(&self) {
        self.order(STOP);
    }

    /// Only the first order counts.
    fn order(&self, order: u8) {
        let _ = self.0.order.compare_exchange(0, order, Ordering::AcqRel, Ordering::Acquire);
        self.wake_all();
    }

    /// Returns the reason that was ordered.
    pub(crate) fn reason(&self) -> Option<EndReason> {
        match self.0.order.load(Ordering::Acquire) {
            LEAVE => Some(EndReason::Left),
            STOP => Some(EndReason::Stopped),
            _ => None,
        }
    }

    /// Sets the queues on which agents sleep from now on.
    pub(super) fn set_queues(&self, backend: &Arc<dyn Backend>, queues: &[QueueId]) {
        let queues = queues.iter().map(|&queue| (Arc::clone(backend), queue)).collect();
        *self.0.queues.lock().unwrap_or_else(PoisonError::into_inner) = queues;
    }

    /// Wakes all agents.
    pub(super) fn wake_all(&self) {
        let queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.iter().for_each(|(backend, queue)| backend.wake(*queue));
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("reason", &self.reason()).finish_non_exhaustive()
    }
}
