//! `heddle bench connections`: what a server's work costs when it has a thousand live connections, and when it has a hundred thousand.
//!
//! ```text
//!   Client (this process)     1,000 .. 100,000 connections      Server (a process of its own for each run)
//!   writes 8 bytes, reads them <------------------------------> a task a connection; each read has a time limit
//! ```
//!
//! A run climbs a *ladder*: it opens connections up to the first level, measures, opens more up to the next, measures again.
//!
//! # Invariants
//!
//! - **I1** Systems of a round climb the same ladder, one after the other; a ratio is of two levels of one run.
//! - **I2** The client has 64 requests under way, in the order of the connections, whatever the level.
//! - **I3** Load goes to loopback addresses only.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod ladder;
mod limits;
mod server;
mod system;
mod targets;

pub use bench::{ConnectionsOptions, Part};
pub use limits::check as check_limits;
pub use server::serve;
pub use system::System;
