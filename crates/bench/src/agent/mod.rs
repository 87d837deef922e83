//! `heddle bench agent`: what agents do for kernel threads, the cost of their operations, and what happens to
//! threads when agents die or are replaced.
//!
//! ```text
//!   this process                  heddle agent (guardian)            a load: this binary again (`--child`)
//!   rounds, rows,  -- starts -->  enclave, agent process  -- starts -->  hogs, a periodic thread, a server
//!   verdicts       <------------------ a line of JSON -------------------'
//! ```
//!
//! The same load also runs under the default scheduler, started without the guardian. Parts that need their
//! own transactions (`table3`, `group`) use [`heddle_agent::Backend`] directly; `scaling` uses the model,
//! without an operating system.
//!
//! # Invariants
//!
//! - **I1** Systems of a round run the same load, one after the other; a ratio compares two runs of one round.
//! - **I2** Delays count from the due time; periods missed by a late thread count too.
//! - **I3** However a part ends, nothing is left behind: loads run in their own process groups, which end
//!   with the part, and enclaves end with their guardians.
//! - **I4** A part that cannot run here reports why in its place, and the others run.
//! - **I5** Nothing here spins at a real-time priority without a time limit that the kernel enforces.

#![forbid(unsafe_code)]

mod bench;
mod by_hand;
pub mod child;
mod colocated;
pub mod delay;
pub mod fate;
mod generator;
mod group;
mod launch;
mod part;
mod report;
mod running;
pub mod scaling;
pub mod search;
pub mod server;
pub mod services;
mod simulated;
pub mod snap;
mod system;
pub mod table3;
mod testbed;
pub mod vm;

pub use bench::AgentOptions;
pub use launch::{Enclave, Launcher, backend_here};
pub use part::Part;
pub use system::System;
