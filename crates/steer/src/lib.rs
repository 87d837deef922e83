//! Steering: packets, datagrams, connections and requests to the right socket, core or queue.
//!
//! A policy is one C function that matches an input with an executor ([`policy`]); a hook is a point in the
//! kernel where it decides ([`hook`]). `docs/design/steer.md` explains how the parts fit.
//!
//! - **I1** A policy sees its input's window, its maps and the lines of its executors, whatever bytes it
//!   consists of: access to packets and sockets is in Heddle's own frame, linked around it
//!   ([`policy::link`]).
//! - **I2** A policy is replaced or removed by one store into its hook's program array; inputs meet the old
//!   one, the new one or the kernel's own choice, and are never lost between them.
//! - **I3** A choice that the kernel cannot follow is counted, and the input goes where it would have gone
//!   without Heddle.
//! - **I4** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]

pub mod client;
pub mod engine;
pub mod executor;
pub mod hook;
mod key_hash;
pub mod lane;
pub mod late;
pub mod native;
pub mod policy;
pub mod probe;
pub mod process;
pub mod request;
pub mod tokens;

pub use key_hash::key_hash;
