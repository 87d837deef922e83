//! The wire formats of the key-value server and its load generator: parsing and writing, without sockets.
//!
//! # Invariants
//!
//! - **I1** However the bytes of a connection are cut, the requests are the same (`resp_tests.rs`,
//!   `memcached/tests.rs`, `fuzz/fuzz_targets/resp.rs`, `fuzz/fuzz_targets/memcached.rs`).
//! - **I2** A reader holds a bounded part of the stream: one line or one argument, and the limits that its
//!   caller gives.
//! - **I3** Malformed input yields an error, never a panic; after [`resp::ProtocolError`] or
//!   [`memcached::Fatal`] nothing more is parsed.
//! - **I4** What is written is read back unchanged.
//!
//! It does no I/O and knows nothing of stores, commands or runtimes.

#![forbid(unsafe_code)]

mod input;
pub mod memcached;
pub mod resp;
mod resp_words;
pub mod udp;
