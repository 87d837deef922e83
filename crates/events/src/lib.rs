//! Ready events to threads (SKQ, in user space on stock Linux): all threads of a program wait on one [`EventQueue`], and a policy decides
//! which of them handles what. No event is handled by two threads at once, and nothing has to be armed anew.
//!
//! An event is a task of the policy, a thread that waits an executor (a CPU, in the policies' words). `place` is asked when an event
//! happens, `balance` and `steal` when a thread has nothing to do.
//!
//! ```no_run
//! use heddle_events::{EventOptions, EventQueue, Interest};
//! use std::io::Read as _;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let connections: Vec<std::net::TcpStream> = Vec::new();
//! let queue = EventQueue::builder().policy("hybrid").build()?;
//! for (token, connection) in connections.iter().enumerate() {
//!     queue.register(connection, Interest::READ, token as u64, EventOptions::default())?;
//! }
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!             let mut worker = queue.worker()?;
//!             loop {
//!                 for event in worker.wait(None)? {
//!                     let mut request = [0; 4096];
//!                     let bytes = (&connections[event.token() as usize]).read(&mut request)?;
//!                     println!("{bytes} bytes");
//!                 }
//!             }
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - **E1** Between the moment at which a thread is given an event and that at which it lets go of it, no thread is given another event of
//!   the same registration (the state word, checked by loom).
//! - **E2** What happens to a descriptor while its event is held is told afterwards. No event is lost when threads come or leave or the
//!   policy changes: lanes that end are emptied into the new ones, under their locks.
//! - **E3** A thread parks only after it has said so and has then looked at its lane and, where the policy balances, at others'
//!   (`heddle_sync::IdleSet`).
//! - **E4** Lanes' locks are leaves: nothing else is locked under one, and no system call made.

// Under loom there are the protocols alone: the state word, the lanes.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod claims;
#[cfg(not(loom))]
mod descriptors;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod harvest;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod orphans;
#[cfg(not(loom))]
pub mod polling;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod register;
#[cfg(not(loom))]
mod release;
#[cfg(not(loom))]
mod roster;
mod schedule;
#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod sources;
#[cfg(not(loom))]
mod spread;
mod state;
#[cfg(all(test, not(loom)))]
mod state_tests;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod visit;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use batch::{Batch, Event};
#[cfg(not(loom))]
pub use error::EventError;
#[cfg(not(loom))]
pub use queue::{DEFAULT_CAPACITY, DEFAULT_POLICY, EventQueue, EventQueueBuilder};
#[cfg(not(loom))]
pub use register::{EventOptions, Interest};
#[cfg(not(loom))]
pub use slot::EventId;
#[cfg(not(loom))]
pub use sources::{FileChanges, When, block_signals};
#[cfg(not(loom))]
pub use stats::{Stats, WorkerStats};
#[cfg(not(loom))]
pub use worker::{Fired, Worker};
