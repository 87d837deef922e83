//! The schedule itself, step by step.

pub use heddle_core::{Event, EventKind};

/// Sees every step of a run.
pub trait Watch {
    /// `step` has just happened.
    fn step(&mut self, step: Event);
}

/// Records the first steps of a run.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The steps, in order.
    pub steps: Vec<Event>,
    limit: usize,
}

impl Recorder {
    /// Records at most `limit` steps.
    pub fn new(limit: usize) -> Recorder {
        Recorder { steps: Vec::new(), limit }
    }
}

impl Watch for Recorder {
    fn step(&mut self, step: Event) {
        if self.steps.len() < self.limit {
            self.steps.push(step);
        }
    }
}
