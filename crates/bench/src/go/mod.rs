//! `heddle bench go`: the same Go programs on the stock runtime and on one with Heddle's scheduler, under
//! several settings.
//!
//! ```text
//!   go/bench/badger-server  --go build--------> stock --------.
//!   go/bench/micro          --heddle go build-> overlay + HEDDLE_GO --> rounds --> rows, targets
//! ```
//!
//! # Invariants
//!
//! - **I1** Systems run the same sources, built by the same toolchain; all but `stock` are one binary with
//!   different `HEDDLE_GO`.
//! - **I2** Systems of a round take turns under the same arrivals, and each round starts with another; a
//!   ratio compares two runs of one round.
//! - **I3** A binary that ignores `HEDDLE_GO` is not measured: an invalid value must end it.
//! - **I4** No server and no file outlives the bench, unless the bench is killed; then servers end by themselves.
//! - **I5** Nothing in `GOROOT` or in the source folder is changed.

#![forbid(unsafe_code)]

mod badger;
mod bench;
mod calibrated;
mod cpu;
mod options;
mod part;
mod report;
mod rows;
mod server;
mod system;
mod targets;
mod testbed;
mod toolchain;

pub use bench::GoOptions;
pub use options::{BadgerOptions, Carrier, CpuOptions};
pub use part::Part;
pub use system::{Policy, Sysmon, System};
pub use toolchain::Toolchain;

#[cfg(test)]
mod tests;
