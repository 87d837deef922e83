//! `heddle bench events`: one event queue with a policy against the ways in which threads share epoll today.
//!
//! ```text
//!   a generator (a thread, open loop, Poisson)     connections      the same handler on all systems
//!   Client  -------------------------------------> Connection  ---> WorkerThreads: threads of one Demux
//!     ^                                                               |
//!     +------------- answers that say when they were complete --------+
//! ```
//!
//! Systems differ only in their [`Demux`], which has three operations: register, wait, done.
//!
//! # Invariants
//!
//! - **I1** Systems of a round run the same handlers under the same arrivals, one after the other; a ratio
//!   compares two runs of one round.
//! - **I2** Latency counts from the intended send time to the handler's completion; a run whose generator
//!   fell behind is kept and not quoted.
//! - **I3** A request is answered exactly once, on every system.
//! - **I4** Nothing here runs above the default priority: the machine can be shared.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod connection;
mod demux;
mod idle;
mod loaded;
mod memcached;
mod offered;
mod open;
mod overhead;
mod part;
mod pipes;
mod predicted;
mod priority;
mod queue;
mod report;
mod ring;
mod service;
mod shared_epoll;
mod system;
mod targets;
mod uniform;
mod web;
mod worker_threads;
mod workload;

pub use bench::EventsOptions;
pub use demux::{Demux, EventWorker, Remainder, Watched};
pub use idle::IdleOptions;
pub use loaded::LoadedOptions;
pub use memcached::MemcachedOptions;
pub use open::open;
pub use overhead::OverheadOptions;
pub use part::Part;
pub use pipes::PipesOptions;
pub use predicted::{PREFIX, predicted};
pub use priority::PriorityOptions;
pub use service::Service;
pub use system::System;
pub use uniform::UniformOptions;
pub use web::WebOptions;
pub use workload::{Class, Wire, Workload};

#[cfg(test)]
mod tests;
