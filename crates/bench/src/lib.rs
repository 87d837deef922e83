//! The benches: runners that compare systems in interleaved rounds, and turn the results into rows, targets
//! and reports.
//!
//! - [`agent`]: kernel threads under agents, and the cost of agents' operations.
//! - [`connections`]: a server with more and more live connections.
//! - [`cross`]: steering and an agent by the same classes: either alone, and both.
//! - [`events`]: one event queue against the ways in which threads share epoll.
//! - [`futures`]: async tasks on Heddle, tokio and smol: operations, memory, requests under load.
//! - [`go`]: Go programs on the stock runtime and with Heddle's scheduler.
//! - [`kv`]: the key-value server on several systems.
//! - [`net`]: the runtime's own network beside the kernel's.
//! - [`posix`]: C programs as kernel threads and as tasks.
//! - [`probes`]: what preemption probes cost, and how precisely they preempt.
//! - [`share`]: applications that share a CPU, and what the kernel offers instead.
//! - [`steer`]: steering policies on six executors in dilated time, their costs, and unmodified servers.
//! - [`suite`]: what benches of several parts share.
//! - [`threads`]: basic thread operations in Heddle and its peers.
//!
//! Server, load generator, store and wire formats are crates of their own: `heddle-server`, `heddle-load`,
//! `heddle-store`, `heddle-proto`.
//!
//! # Invariants
//!
//! - **I1** All systems of a round get the same arrivals, and take turns; a ratio compares two runs of one round.
//! - **I2** A run that is invalid (a late generator, a busy neighbour) is kept and marked, never quoted.
//! - **I3** A part that cannot run reports why in its place, and the others run.
//! - **I4** No server, thread, program or file outlives the bench, however it ends.
//!
//! Each module adds its own. No bench runs at a priority that the kernel does not limit, and none sends load
//! off this machine.

#![deny(unsafe_code)]

pub mod agent;
pub mod connections;
pub mod cross;
pub mod events;
pub mod futures;
pub mod go;
pub mod kv;
pub mod net;
pub mod posix;
pub mod probes;
pub mod share;
pub mod steer;
pub mod suite;
pub mod threads;
