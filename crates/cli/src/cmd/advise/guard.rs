//! A process that undoes a change if the command that made it dies.
//!
//! The command starts it with the change and the read end of a pipe. It waits until the pipe ends: after a line that
//! says `done`, there is nothing to undo; without one, the command was killed. It ignores the signals that a terminal
//! sends, and is in a process group of its own.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::change::Applicable;
use crate::exit::{self, Outcome};

const DONE: &str = "done";

/// A guard of a change that may be in effect.
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts it, before the change is applied.
    pub fn start(change: &Applicable) -> anyhow::Result<Guard> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command
            .args(["advise", "guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let mut child = command
            .spawn()
            .context("cannot start the process that undoes the change if this one dies")?;
        let mut pipe = child.stdin.take();
        if let Some(pipe) = &mut pipe {
            writeln!(pipe, "{}", serde_json::to_string(change)?).context("the guard has ended")?;
        }
        Ok(Guard { child, pipe })
    }

    /// Fails if it no longer runs: the change would outlive this process.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => anyhow::bail!(
                "the process that would undo the change if this one died has ended itself"
            ),
        }
    }

    /// The change is undone, or is to stay.
    pub fn dismiss(mut self) -> anyhow::Result<()> {
        if let Some(mut pipe) = self.pipe.take() {
            writeln!(pipe, "{DONE}").context("the guard has ended")?;
        }
        self.child.wait().context("the guard cannot be waited for")?;
        Ok(())
    }
}

/// The guard's own life.
pub fn run() -> anyhow::Result<Outcome> {
    // Only the end of the pipe ends it.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::default())?;
    }
    let mut lines = BufReader::new(io::stdin()).lines();
    let Some(change) = lines.next().transpose()? else { return Ok(Outcome::Done) };
    let change: Applicable =
        serde_json::from_str(&change).context("this is for `heddle advise check` only")?;
    let done = lines.map_while(Result::ok).any(|line| line == DONE);
    if !done {
        change.set(false)?;
        exit::note("heddle advise check was killed: the change is undone");
    }
    Ok(Outcome::Done)
}
