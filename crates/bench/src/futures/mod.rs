//! `heddle bench async`: async tasks on Heddle, tokio and smol.
//!
//! ```text
//! for each round, operation or load, system:      (interleaved, so that a noisy minute hits all alike)
//!     a fresh process whose runtime has one CPU
//!         an operation for 200 ms                 -> CPU time per operation of the whole process
//!         idle tasks                              -> resident memory per task
//!         one future per request, from a thread   -> response times from the scheduled arrivals
//!         on another CPU
//! ```
//!
//! # Invariants
//!
//! - **I1** Systems of a round get the same arrivals, and the same number of steps of work for each request.
//! - **I2** A response time counts from the scheduled arrival. A run is invalid if the generator was late, if requests
//!   got no answer, or if other processes took CPU time.
//! - **I3** A run ends by itself: the generator gives up if a system falls too far behind, and the process is ended if
//!   it does not end.

#![forbid(unsafe_code)]

mod bench;
mod child;
mod launch;
mod micro;
mod op;
mod options;
mod part;
mod report;
mod service;
mod system;
mod targets;
pub(crate) mod work;
mod workload;

pub use child::run as run_child;
pub use op::Op;
pub use options::AsyncOptions;
pub use part::Part;
pub use system::System;
pub use workload::Workload;
