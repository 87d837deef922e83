//! `heddle bench agent`: what agents do for threads of the kernel, what their operations cost, and what happens to threads
//! when agents die or are replaced.
//!
//! ```text
//!   this process                  heddle agent (guardian)            a load: this binary again (`--child`)
//!   rounds, rows,  -- starts -->  enclave, agent process  -- starts -->  hogs, a periodic thread, a server
//!   verdicts       <------------------ a line of JSON -------------------'
//! ```
//!
//! The same load runs under the default scheduler, started without the guardian. What needs transactions of its own (`table3`,
//! `group`) is written on [`heddle_agent::Backend`], and `scaling` on the model without an operating system.
//!
//! # Invariants
//!
//! - **I1** Systems of a round run the same load, one after the other; a ratio is of two runs of one round.
//! - **I2** Delays count from the time at which something was due; what came too late to be asked for is not left out.
//! - **I3** Whatever ends a part, nothing stays: loads live in process groups of their own that are ended with it, and enclaves end with
//!   their guardians.
//! - **I4** A part that cannot run here says why, in its place, and the others run.
//! - **I5** Nothing here spins at a real-time priority without a limit on its time that the kernel enforces.

#![forbid(unsafe_code)]

mod bench;
pub mod child;
pub mod delay;
pub mod fate;
mod group;
mod launch;
mod part;
mod report;
mod running;
pub mod scaling;
pub mod server;
pub mod services;
mod system;
pub mod table3;
mod testbed;

pub use bench::AgentOptions;
pub use launch::{Enclave, Launcher, backend_here};
pub use part::Part;
pub use system::System;
