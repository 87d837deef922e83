//! A discrete-event simulator that runs the actual policies of `heddle-policies` on machines that are
//! not at hand.
//!
//! ```text
//!  Scenario  = machine + policy + costs + workload      (from TOML, flags, or code)
//!     | run
//!  Outcome   = latencies, slowdowns, where time went    (with confidence intervals, or why it must not be quoted)
//! ```
//!
//! [`workload`] is what arrives, [`theory`] what queueing theory predicts, and [`validate`] compares
//! the two. [`service`] replays a recorded service on a host, with workers and other threads.
#![forbid(unsafe_code)]

pub mod costs;
mod engine;
mod error;
pub mod events;
mod machine;
mod outcome;
pub mod papers;
mod random;
pub mod reference;
mod replay;
pub mod report;
mod run;
mod scenario;
pub mod service;
pub mod sweep;
pub mod theory;
pub mod validate;
pub mod workload;

pub use engine::{Event, EventKind, Recorder, Watch};
pub use error::SimError;
pub use machine::Machine;
pub use outcome::{Counts, Estimate, Outcome, PartOutcome, Shares, Unstable};
pub use random::Random;
pub use run::{run, run_policy, run_steered, run_watched};
pub use scenario::{
    Connections, Draft, Flag, Key, Load, SHIPPED, Scenario, ScenarioError, Shipped, Steer,
    Steering, ValueSource, keys,
};
