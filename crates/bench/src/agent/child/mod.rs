//! What the runner starts: this binary as a load. Under an agent it is an unmodified program.

mod antagonists;
pub mod echo;
mod hog;
mod load;
mod periodic;
mod sleeper;
mod window;

use serde::Serialize;
use std::io::{self, Write as _};

pub use antagonists::{AntagonistSpec, run_with_antagonists};
pub use echo::EchoSpec;
pub use hog::{Gap, HogReport};
pub use load::{LoadReport, LoadSpec, run};
pub use periodic::{PeriodicReport, PeriodicSpec};
pub use sleeper::{SleeperSpec, sleeper};
pub use window::Window;

/// The child that calls [`run`]: a load described in JSON, whose report is one line of JSON.
pub const LOAD: &str = "load";
/// The child that calls [`run_with_antagonists()`].
pub const ANTAGONISTS: &str = "antagonists";
/// The child that calls [`sleeper()`]: a thread that others wake.
pub const SLEEPER: &str = "sleeper";
/// The child that calls [`echo::echo()`]: a packet-processing service.
pub const ECHO: &str = "echo";

/// Runs the child `what` with `spec`; returns the exit code.
///
/// # Errors
/// System errors; an invalid `spec`; an unknown `what`.
pub fn be(what: &str, spec: &str) -> io::Result<u8> {
    match what {
        LOAD => print_report(&run(&serde_json::from_str(spec)?)?),
        SLEEPER => print_report(&sleeper(&serde_json::from_str(spec)?)?),
        ECHO => echo::echo(serde_json::from_str(spec)?),
        ANTAGONISTS => run_with_antagonists(&serde_json::from_str(spec)?),
        other => {
            let there = [LOAD, SLEEPER, ECHO, ANTAGONISTS].join(", ");
            Err(io::Error::other(format!("no child `{other}`; there are {there}")))
        }
    }
}

fn print_report(report: &impl Serialize) -> io::Result<u8> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(report)?)?;
    out.flush().map(|()| 0)
}
