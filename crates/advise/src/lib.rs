//! From a recording of a running service to what would help it, and whether it did.
//!
//! ```text
//! Recording -> Model -> self-check -> options, each replayed -> Advice (ranked, or "nothing", or a reason to decline)
//!                                                                  on and off windows -> Verdict
//! ```
//!
//! - **I1** "Before" is always the observation. The model supplies ratios only.
//! - **I2** The model is used only if it reproduces the present ([`SelfCheck`]).
//! - **I3** "Nothing" is an option, and wins unless another gains at least a tenth with its whole interval.
//! - **I4** Steering options run the policy code that is deployed ([`heddle_steer::native`]).
//!
//! `docs/design/advise.md` has the reasons.
#![forbid(unsafe_code)]

mod advice;
mod classes;
mod decline;
mod design;
mod error;
mod extract;
mod model;
mod options;
mod predict;
mod quantile;
mod replay;
mod slo;
pub mod tune;
mod verdict;
mod weights;

pub use advice::{Advice, Options, advise, advise_design};
pub use decline::{Decline, Evidence, has_enough};
pub use design::Design;
pub use error::AdviseError;
pub use extract::busiest_port;
pub use model::{
    ClassOfRequests, Model, ModelError, Neighbour, Queue, Request, Worker, WorkerKind,
};
pub use options::{Change, Effort};
pub use predict::{Prediction, Row, SelfCheck};
pub use quantile::{Interval, quantile};
pub use replay::Cpus;
pub use slo::{Percentile, Slo, SloError};
pub use verdict::{Measured, Outcome, Trial, Verdict};
