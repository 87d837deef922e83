//! The broker of a share: CPUs that several applications use together, one at a time on each.
//!
//! Members hand CPUs over by themselves ([`heddle_share`]). The broker admits them, ranks them, lets them be real-time,
//! takes out those that die, and takes CPUs from those that do not give them back. The design is in
//! `docs/design/share.md`.
//!
//! # Invariants
//!
//! - **I1** One thread does everything and never waits for a client: it sends without waiting, and what a client has
//!   sent is closed by another thread. Without work it sleeps.
//! - **I2** Every client is bounded: packets and connections in a second, connections at a time, applications.
//! - **I3** What members write into their memory is shown and compared, and never an index or a length. When something
//!   began the broker knows by its own clock.
//! - **I4** The end of the broker changes nothing for members; another one takes over.
//! - **I5** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]

mod admission;
mod broker;
mod budget;
mod client;
mod closing;
mod config;
mod cpus;
mod events;
mod listen;
mod member;
mod overtime;
mod paths;
mod realtime;
mod report;
mod start;
mod status;

pub use broker::{Broker, End};
pub use client::{QueryError, query, query_within};
pub use config::{Config, ConfigError, Realtime};
pub use listen::group_number;
pub use paths::{Owner, UnusablePath};
pub use report::{AppReport, CoreReport, CpuReport, EventReport, Report, ShareReport};
pub use start::{Options, StartError};
