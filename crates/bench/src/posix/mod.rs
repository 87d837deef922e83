//! `heddle bench posix`: unmodified programs as kernel threads and, under `heddle run`, as tasks.
//!
//! ```text
//!   programs/*.c --cc -O2 -pthread--> plain              --.
//!                                     plain, long at nice 19 --> rounds --> rows, targets
//!   Debian's servers -----------------> heddle run --policy  --'
//! ```
//!
//! # Invariants
//!
//! - **I1** All systems run the same binaries; only the command in front of them differs.
//! - **I2** Systems of a round take turns, and each round starts with another; a ratio or a difference compares
//!   two runs of one round.
//! - **I3** Heddle's systems start as users start them: by `heddle run`, which refuses what it cannot preload.
//! - **I4** A program that fails or hangs is an invalid run with its reason, and the others go on.
//! - **I5** No program, server or file outlives the bench, unless the bench is killed; then the server ends by
//!   itself.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod compute;
pub(crate) mod daemon;
mod first;
pub(crate) mod installed;
pub(crate) mod launch;
mod mariadb;
pub(crate) mod memcached;
mod micro;
mod options;
mod part;
pub(crate) mod process;
pub(crate) mod programs;
mod report;
pub(crate) mod rounds;
mod schbench;
mod server;
mod system;
pub(crate) mod testbed;
mod tokio;
pub(crate) mod turns;

pub use options::PosixOptions;
pub use part::Part;
pub use system::{Kind, LONG_POLICY, POLICY, System};

#[cfg(test)]
mod tests;
