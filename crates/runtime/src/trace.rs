//! The schedule itself: when each task was queued, ran, waited and ended; see [`crate::Runtime::record`].

pub use heddle_core::{Event, EventKind};

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The events, by time; those of one run queue are in order. [`Event::who`] is the number of a task among those
    /// that exist: a task that ends may leave it to one that is created later, from [`EventKind::New`] on.
    pub events: Vec<Event>,
    /// How many events were overwritten before they were read: the earliest of their queues.
    pub lost: u64,
}
