//! Agents (ghOSt): user-space processes that assign the kernel's threads to CPUs, on stock kernels.
//!
//! An *enclave* is a set of CPUs and the threads that were put into it. A *backend* sends an *agent* messages
//! about them and carries out its transactions ([`Backend`]); the *policy agent* decides by any thread policy
//! of `heddle-policies`. `docs/design/agent.md` explains how the parts fit.
//!
//! - **I1** Status words are the truth and messages announce changes of it: a lost message costs time, never
//!   a thread.
//! - **I2** A transaction that rests on old messages fails; it never does something else than what it says.
//! - **I3** A thread is never worse off than under the default scheduler for longer than the enclave's
//!   patience: if an agent dies, hangs or loses a thread, the thread is given back.
//! - **I4** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]

pub mod agent;
mod backend;
pub mod classes;
mod enclave;
pub mod fair;
pub mod guardian;
mod identity;
pub mod model;
mod objects;
pub mod policy;
mod private;
mod process_threads;
pub mod rt;
pub mod scx;
mod transition;

pub use backend::{Backend, BackendError, Takers, Traits};
pub use enclave::{EnclaveSpec, Moved, PickNext};
