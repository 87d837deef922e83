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
//!   the same registration ([`state`](mod@state), checked by loom).
//! - **E2** What happens to a descriptor while its event is held is told afterwards. No event is lost when threads come or leave or the
//!   policy changes: lanes that end are emptied into the new ones, under their locks.
//! - **E3** A thread parks only after it has said so and has then looked at its lane and, where the policy balances, at others'
//!   (`heddle_sys::sync::IdleSet`).
//! - **E4** Lanes' locks are leaves: nothing else is locked under one, and no system call made.

mod batch;
mod descriptors;
mod error;
mod harvest;
pub mod polling;
mod port;
mod queue;
mod register;
mod release;
mod roster;
mod schedule;
mod seat;
mod slot;
mod sources;
mod spread;
mod state;
mod stats;
mod watch;
mod worker;

pub use batch::{Batch, Event};
pub use error::EventError;
pub use queue::{DEFAULT_CAPACITY, DEFAULT_POLICY, EventQueue, EventQueueBuilder};
pub use register::{EventOptions, Interest};
pub use slot::EventId;
pub use sources::{FileChanges, When, block_signals};
pub use stats::{Stats, WorkerStats};
pub use worker::{Fired, Worker};
