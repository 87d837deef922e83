//! A program and its antagonists in one enclave: threads of another process that want every CPU.

use super::hog::{HogReport, hog};
use super::window::Window;
use heddle_core::Ns;
use heddle_sys::clock;
use heddle_sys::scheduling::{self, Scheduling};
use rustix::process::nice;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::Command;
use std::thread::Builder;

/// A program and the antagonists that run beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AntagonistSpec {
    /// Antagonists, called `antagonist-N`.
    pub antagonists: usize,
    /// Their nice value.
    pub nice: i32,
    /// Whether they are `SCHED_IDLE`.
    pub idle: bool,
    /// The CPUs of both, unless an enclave sets them; empty: all.
    pub cpus: Vec<u32>,
    /// The program, with arguments. It inherits this process's standard input and output.
    pub program: Vec<String>,
}

/// Longer than any run: antagonists end with their process.
const ONE_DAY: Ns = Ns::from_secs(24 * 3600);

/// Runs the program, and the antagonists for as long as it runs; returns its exit code.
///
/// # Errors
/// System errors.
pub fn run_with_antagonists(spec: &AntagonistSpec) -> io::Result<u8> {
    if !spec.cpus.is_empty() {
        heddle_sys::thread::pin(&spec.cpus)?;
    }
    let (name, arguments) =
        spec.program.split_first().ok_or_else(|| io::Error::other("no program"))?;
    // Started before the antagonists: it inherits nothing from them, and is ready sooner.
    let mut child = Command::new(name).args(arguments).spawn()?;
    for k in 0..spec.antagonists {
        let (by, idle) = (spec.nice, spec.idle);
        Builder::new().name(format!("antagonist-{k}")).spawn(move || antagonist(by, idle))?;
    }
    let status = child.wait()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn antagonist(by: i32, idle: bool) -> HogReport {
    // Without the permission the nice value stays: the share shows it.
    let _ = nice(by);
    if idle {
        let _ = scheduling::set(0, Scheduling::IDLE);
    }
    let now = clock::now();
    hog(Window { begin: now, end: now + ONE_DAY })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_programs() {
        let run = |program: &[&str]| {
            let program = program.iter().map(|&word| word.into()).collect();
            run_with_antagonists(&AntagonistSpec {
                antagonists: 0,
                nice: 0,
                idle: false,
                cpus: Vec::new(),
                program,
            })
        };
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap(), 7);
        assert!(run(&["/nonexistent"]).is_err() && run(&[]).is_err());
    }
}
