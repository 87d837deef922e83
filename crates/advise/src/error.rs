//! Why advice fails.

#[cfg(doc)]
use crate::Decline;

/// Why advice failed: not the service's fault, as a [`Decline`] is.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The simulator refused the model.
    #[error("the model cannot be replayed: {0}")]
    Replay(#[from] heddle_sim::SimError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] heddle_sim::workload::FileError),
    /// A scenario's arrivals make no sense.
    #[error("{0}")]
    Scenario(String),
    /// Nothing can be said about arrivals that wait for answers.
    #[error(
        "the scenario is a closed loop: its clients wait for answers, so no policy makes them wait less at \
         the same load"
    )]
    Closed,
    /// A steering policy cannot be simulated.
    #[error("{0}")]
    Policy(heddle_steer::native::NativeError),
    /// The limit names a class that the service does not have.
    #[error("the limit is for class `{class}`, and the requests have {}", names.join(", "))]
    NoClass {
        /// As given.
        class: String,
        /// Those that it has.
        names: Vec<String>,
    },
}
