//! Ready events to threads (SKQ, in user space on stock Linux). All threads of a program wait on one
//! [`EventQueue`], and a policy decides which thread handles which event. No two threads handle the same
//! event at once, and nothing needs to be rearmed.
//!
//! To the policy, an event is a task and a waiting thread is an executor (a CPU, in the policies' terms).
//! `place` is called when an event happens, `balance` and `steal` when a thread has nothing to do.
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
//! - **E1** From the moment a thread is given an event until it releases it, no thread is given another event
//!   of the same registration (the state word, checked by loom).
//! - **E2** What happens to a descriptor while its event is held is reported afterwards. No event is lost
//!   when threads join or leave or the policy changes: run queues that end are emptied into the new ones,
//!   under their locks.
//! - **E3** A thread parks only after it has marked itself idle and then looked at its run queue and, if the
//!   policy balances, at the others' (`heddle_sync::IdleSet`).
//! - **E4** The locks of run queues are leaves: no other lock is taken and no system call is made while one
//!   is held.
//!
//! # Modules
//!
//! Each part knows only those above it: the page of counters (`telemetry`); the state word, slots and ports;
//! the policy's run queues (`schedule`) and the workers over them; the dispatcher, which puts events into run
//! queues; the watches, which register descriptors in the workers' epolls; the sources of timers, signals,
//! processes and files; `inner`, which holds these parts; the worker's wait loop; the public handles.

// Under loom only the protocols are compiled: the state word and the run queues.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod claims;
#[cfg(not(loom))]
mod deliver;
#[cfg(not(loom))]
mod departed;
#[cfg(not(loom))]
mod descriptors;
#[cfg(not(loom))]
mod dispatch;
#[cfg(not(loom))]
mod drift;
#[cfg(not(loom))]
mod end;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod harvest;
#[cfg(not(loom))]
mod ids;
#[cfg(not(loom))]
mod inner;
#[cfg(not(loom))]
mod membership;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
pub mod polling;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod prepare;
#[cfg(not(loom))]
mod pumps;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod register;
#[cfg(not(loom))]
mod release;
#[cfg(not(loom))]
mod relocate;
mod schedule;
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
mod telemetry;
#[cfg(not(loom))]
mod visit;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod window;
#[cfg(not(loom))]
mod worker;
#[cfg(not(loom))]
mod worker_state;
#[cfg(not(loom))]
mod workers;

#[cfg(not(loom))]
pub use batch::{Batch, Event};
#[cfg(not(loom))]
pub use error::EventError;
#[cfg(not(loom))]
pub use ids::EventId;
#[cfg(not(loom))]
pub use options::{EventOptions, Interest};
#[cfg(not(loom))]
pub use prepare::PollState;
#[cfg(not(loom))]
pub use queue::{DEFAULT_CAPACITY, DEFAULT_POLICY, EventQueue, EventQueueBuilder};
#[cfg(not(loom))]
pub use register::block_signals;
#[cfg(not(loom))]
pub use sources::{FileChanges, TimerStart};
#[cfg(not(loom))]
pub use stats::{Stats, WorkerStats};
#[cfg(not(loom))]
pub use worker::Worker;
#[cfg(not(loom))]
pub use worker_state::Fired;
