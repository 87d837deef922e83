//! What measures Heddle: a key-value server, the load that drives it, and runners that compare systems.
//!
//! - [`store`]: an ordered key-value store, in memory or on RocksDB.
//! - [`proto`]: RESP for people and real clients, a compact datagram for the load generator.
//! - [`server`]: the same request handlers on Heddle, tokio and plain threads.
//!
//! # Invariants
//!
//! - **I1** Every system runs the same handler code on the same store; only scheduling differs.
//! - **I2** Whatever a client sends, the error goes to that client and the server lives.
//! - **I3** A write that was acknowledged by a RocksDB store survives `kill -9`.
//! - **I4** Every queue is bounded and every overflow is counted.

#![deny(unsafe_code)]

pub mod proto;
pub mod server;
pub mod store;
