//! Agents: the kernel's threads to CPUs, decided in user space (ghOSt), on stock kernels.
//!
//! An *enclave* is a set of CPUs and the threads that were put into it. A *backend* tells an *agent* what happens to them
//! by messages and carries out its transactions ([`Backend`]); a *policy agent* makes any thread policy of
//! `heddle-policies` decide. `docs/design/agent.md` says how the parts fit.
//!
//! - **I1** Status words are the truth, messages the news of it: a lost message costs time, never a thread.
//! - **I2** A transaction that rests on old news fails; it never does something else than what it says.
//! - **I3** A thread is never worse off than with the default scheduler for longer than the enclave's patience: an agent that
//!   dies, hangs or loses it gives it back.
//! - **I4** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]

pub mod agent;
mod backend;
pub mod classes;
mod enclave;
pub mod fair;
pub mod guardian;
mod identity;
mod members;
pub mod model;
mod objects;
pub mod policy;
mod private;
pub mod rt;
pub mod scx;

pub use backend::{Backend, BackendError, Traits};
pub use enclave::EnclaveSpec;
