//! `heddle bench connections`: what a server's work costs with a thousand live connections, and with a
//! hundred thousand.
//!
//! ```text
//!   Client (this process)     1,000 .. 100,000 connections      Server (a process of its own for each run)
//!   writes 8 bytes, reads them <------------------------------> a task a connection; each read has a time limit
//! ```
//!
//! A run climbs a *ladder*: it opens connections up to the first level, measures, opens more up to the next,
//! and measures again.
//!
//! # Invariants
//!
//! - **I1** Systems of a round climb the same ladder, one after the other; a ratio compares two levels of one run.
//! - **I2** The client has 64 requests in flight, in the order of the connections, at every level.
//! - **I3** Load goes to loopback addresses only.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod ladder;
mod limits;
mod options;
mod part;
mod server;
mod system;
mod targets;

pub use limits::check as check_limits;
pub(crate) use limits::raise as raise_descriptors;
pub use options::ConnectionsOptions;
pub use part::Part;
pub use server::serve;
pub use system::System;
