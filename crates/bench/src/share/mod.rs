//! `heddle bench share`: what applications that share a CPU cost and gain.
//!
//! ```text
//! for each round, load, system:                   (interleaved, so that a noisy minute hits all alike)
//!     a broker, where the system is a share
//!     two processes on one CPU
//!         that give it to each other              -> wall time of a switch, broken hand-overs
//!         a server and a batch program            -> response times; steps of the batch program
//!         a task that sleeps and a batch program  -> how late it wakes up
//! ```
//!
//! # Invariants
//!
//! - **I1** All systems of a round run the same binaries and get the same arrivals; a ratio compares two runs of one
//!   round.
//! - **I2** A response time counts from the intended send time. A run is invalid if the generator was late, if requests
//!   got no answer, or if other processes took CPU time.
//! - **I3** A program that fails or hangs is an invalid run with its reason, and the others go on.
//! - **I4** No process, cgroup or file outlives the bench, unless the bench is killed; then processes end by
//!   themselves.

#![forbid(unsafe_code)]

mod batch;
mod bench;
mod cgroup;
mod child;
mod colocated;
mod command;
mod critical;
mod launch;
mod options;
mod part;
mod report;
mod rocksdb;
mod rounds;
mod setup;
mod switch;
mod system;
mod targets;
mod testbed;
mod wake;

pub use child::run as run_child;
pub use options::ShareOptions;
pub use part::Part;
pub use system::System;
