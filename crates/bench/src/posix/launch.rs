//! The command that runs a program under a system.

use std::path::Path;
use std::process::{Command, Stdio};

use super::system::System;

/// Returns the command for `program` under `system`; `heddle` is this program, which has `heddle run`.
pub(crate) fn command(heddle: &Path, system: &System, program: &Path, args: &[String]) -> Command {
    let mut command = match system {
        System::Kernel | System::KernelNice => Command::new(program),
        System::Heddle(policy) => {
            let mut command = Command::new(heddle);
            command.args(["run", "--policy", policy, "--"]).arg(program);
            command
        }
    };
    // The kernel's systems are plain whatever surrounds the bench; `heddle run` sets its own.
    command.env_remove("LD_PRELOAD").args(args);
    command
}

/// Returns why `heddle run` would refuse `program` under `system`, in its own words.
pub(crate) fn refusal(heddle: &Path, system: &System, program: &Path) -> Option<String> {
    let System::Heddle(policy) = system else { return None };
    let mut command = Command::new(heddle);
    command.args(["run", "--policy", policy, "--check"]).arg(program).stdin(Stdio::null());
    let output = match command.env_remove("LD_PRELOAD").output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => output,
        Err(error) => return Some(format!("cannot start {}: {error}", heddle.display())),
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    let line = complaint.lines().next().unwrap_or("heddle run --check gives no reason");
    Some(line.trim_start_matches("heddle: ").to_owned())
}
