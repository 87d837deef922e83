//! What measures Heddle: a key-value server, the load that drives it, and runners that compare systems.
//!
//! - [`agent`]: threads of the kernel under agents, and what agents' operations cost.
//! - [`connections`]: a server with more and more live connections.
//! - [`events`]: one event queue against the ways in which threads share epoll.
//! - [`go`]: Go programs on the stock runtime and with Heddle's scheduler in it.
//! - [`kv`]: the same server on several systems, compared in interleaved rounds.
//! - [`steer`]: steering policies on six executors in dilated time, what they cost, and servers that nobody changed.
//! - [`suite`]: what benches of several parts share.
//! - [`threads`]: what the basic operations of threads cost, in Heddle and in its peers.
//!
//! # Invariants
//!
//! - **I1** Every system runs the same handler code on the same store; only scheduling differs.
//! - **I2** Whatever a client sends, the error goes to that client and the server lives.
//! - **I3** A write that was acknowledged by a RocksDB store survives `kill -9`.
//! - **I4** Every queue is bounded and every overflow is counted.

#![deny(unsafe_code)]

pub mod agent;
pub mod connections;
pub mod events;
pub mod go;
pub mod kv;
pub mod steer;
pub mod suite;
pub mod threads;
