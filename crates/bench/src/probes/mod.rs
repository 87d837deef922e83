//! `heddle bench probes`: what preemption probes cost, how often they look at the clock, and how precisely they end
//! turns.
//!
//! ```text
//!   compiler/kernels/*.c --clang, heddle cc--> variants --interleaved rounds--> slowdowns, targets
//!        scripts/build-programs --FOLDER--> variants --interleaved rounds--> slowdowns, targets
//!             the same + sources/recorder.c --> time between two looks at the clock
//!           sources/turns.c --heddle run, none | signal | probe--> throughput lost, lateness
//! ```
//!
//! # Invariants
//!
//! - **I1** All variants of a kernel or a program are the same source, compiler and options; only the pass's options
//!   differ, and the harness of kernels has no probes.
//! - **I2** Variants and mechanisms of a round take turns, and each round starts with another; a slowdown or a loss
//!   compares two runs of one round.
//! - **I3** A kernel or a program whose checksum differs from the one without probes has no valid time.
//! - **I4** What gaps and turns leave out, because the machine had the CPU, is counted; if it could hide what a
//!   percentile says, the run is invalid.
//! - **I5** A program without probes runs beside the one with probes, and must be late: the measure can fail.
//! - **I6** The sources of kernels and turns are part of this program and are compiled in a temporary folder that does
//!   not outlive it.

#![forbid(unsafe_code)]

mod bench;
mod builds;
mod compiler;
mod gaps;
mod kernels;
mod options;
mod output;
mod part;
mod preempt;
mod programs;
mod report;
mod setting;
mod slowdown;
mod sources;
mod variant;

pub use compiler::Compiler;
pub use options::ProbesOptions;
pub use part::Part;
pub use programs::Programs;

use crate::posix::process::{self, Output};
use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Runs a program on the bench's CPU.
fn run(options: &ProbesOptions, command: Command, stop: &AtomicBool) -> io::Result<Output> {
    process::run(command, &[options.cpu], None, stop)
}

#[cfg(test)]
mod tests;
