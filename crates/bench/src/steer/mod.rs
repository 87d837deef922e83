//! `heddle bench steer`: the effect of steering policies on the tail, their cost, and unmodified servers.
//!
//! ```text
//!            50 flows, open loop, Poisson        a policy in the kernel        six threads, a socket each
//!  Flows  ---------------------------------->  Socket Select (heddle-steer)  ---------------------------> Server
//!    ^                                                                                                      |
//!    +---------------- answers, with the time that the service took (a sleep) ------------------------------+
//! ```
//!
//! Service is a sleep and all times are dilated by a constant, so that six executors behave like six on two cores
//! (DESIGN.md, "Measuring on two cores").
//!
//! # Invariants
//!
//! - **I1** All systems of a round get the same arrivals, one after the other; ratios compare two runs of one round.
//! - **I2** A run whose generator was late is kept and not quoted. A dropped datagram counts with the time
//!   limit, and in `dropped_share`.
//! - **I3** However a part ends, nothing is left behind: sockets, programs, maps, processes and network
//!   namespaces are held only by descriptors and children of this process.
//! - **I4** A part that cannot run here reports why in its place, and the others run.

#![forbid(unsafe_code)]

pub mod access;
mod bench;
pub mod cost;
mod demo;
mod dilation;
mod flows;
mod group;
pub mod mica;
pub mod mixes;
pub mod outside;
mod part;
pub mod replace;
mod report;
mod server;
mod sockets;
mod source;
mod system;
pub(crate) mod wire;

pub use bench::SteerOptions;
pub use demo::{DEMO_STEPS, Demo, demo};
pub use dilation::{Dilation, EXECUTORS};
pub use flows::{FLOWS, Flows};
pub use group::{Group, privilege};
pub use part::Part;
pub use server::Server;
pub use sockets::Sockets;
pub use system::System;
