//! What agents are told from outside.

use super::Why;
use crate::Backend;
use crate::model::QueueId;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends agents; clones are the same. Any thread may hold one.
#[derive(Clone, Default)]
pub struct Control(Arc<Inner>);

#[derive(Default)]
struct Inner {
    order: AtomicU8,
    /// Queues on which agents may sleep.
    bells: Mutex<Vec<(Arc<dyn Backend>, QueueId)>>,
}

const LEAVE: u8 = 1;
const STOP: u8 = 2;

impl Control {
    /// The agents finish their round and detach for a successor; threads stay where they are.
    pub fn leave(&self) {
        self.order(LEAVE);
    }

    /// The agents finish their round and end. What becomes of the threads is the backend's, or the guardian's.
    pub fn stop(&self) {
        self.order(STOP);
    }

    /// The first order counts.
    fn order(&self, order: u8) {
        let _ = self.0.order.compare_exchange(0, order, Ordering::AcqRel, Ordering::Acquire);
        self.ring();
    }

    /// What was ordered.
    pub(crate) fn why(&self) -> Option<Why> {
        match self.0.order.load(Ordering::Acquire) {
            LEAVE => Some(Why::Left),
            STOP => Some(Why::Stopped),
            _ => None,
        }
    }

    /// Agents sleep on these queues from now on.
    pub(super) fn hang(&self, backend: &Arc<dyn Backend>, queues: &[QueueId]) {
        let bells = queues.iter().map(|&queue| (Arc::clone(backend), queue)).collect();
        *self.0.bells.lock().unwrap_or_else(PoisonError::into_inner) = bells;
    }

    /// Wakes all agents.
    pub(super) fn ring(&self) {
        let bells = self.0.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.iter().for_each(|(backend, queue)| backend.wake(*queue));
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("why", &self.why()).finish_non_exhaustive()
    }
}
