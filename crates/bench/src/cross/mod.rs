//! `heddle bench cross`: sockets and threads together (Syrup, section 5.3, Figure 8).
//!
//! ```text
//!  this process, CPU of the load          kernel                     the server (`--child`), its own CPU
//!  50 flows, open loop, Poisson  -->  a policy chooses the socket  -->  six threads, a socket each, that compute
//!            ^                        and writes the class: work                    | answers, with the service time
//!            '----------------------------------------|-------------------------------'
//!                                                     v reads
//!                              an agent chooses the thread (heddle agent run --pid ... --class-map ID:work)
//! ```
//!
//! Services compute for the papers' times, by the thread's own CPU time: a thread that loses its CPU still has the rest
//! of its work to do.
//!
//! # Invariants
//!
//! - **I1** Systems of a round get the same arrivals, one after the other; a ratio compares runs of one round and load.
//! - **I2** A run whose generator was late, or in which the agent gave its threads back, is kept and not quoted.
//! - **I3** However it ends, nothing is left behind: the server ends when its standard input does, and with it its
//!   attachment; the enclave ends with its guardian.
//! - **I4** A real-time thread of the server is killed by the kernel if it computes for long (`RLIMIT_RTTIME`).

#![forbid(unsafe_code)]

mod bench;
mod child;
mod options;
mod part;
mod point;
mod process;
mod rows;
mod system;

pub use child::{SERVER, ServerSpec, serve};
pub use options::CrossOptions;
pub use part::Part;
pub use system::System;
