//! A process that undoes a change if the command that made it dies or hangs.
//!
//! The command starts it with the change and the read end of a pipe, and then renews its lease: a line each second. The
//! guard undoes the change if the pipe ends without a line that says `done` (the command was killed), or if the lease
//! is not renewed (it was stopped). It ignores the signals that a terminal sends, and is in a process group of its own.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::change::Applicable;
use crate::exit::{self, Outcome};

/// Ends the guard without undoing anything.
const DONE: &str = "done";
/// Renews the lease.
const ALIVE: &str = "alive";
/// How often.
const RENEWAL: Duration = Duration::from_secs(1);
/// How long a lease lasts.
const LEASE: Duration = Duration::from_secs(5);

/// A guard of a change that may be in effect.
pub struct Guard {
    child: Child,
    pipe: Arc<Mutex<ChildStdin>>,
    /// Ends the thread that renews the lease when it is dropped.
    renewal: Sender<()>,
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
        let pipe = child.stdin.take().context("the guard has no pipe")?;
        let pipe = Arc::new(Mutex::new(pipe));
        say(&pipe, &serde_json::to_string(change)?).map_err(|_| anyhow!("the guard has ended"))?;
        let (renewal, ended) = channel::<()>();
        let of_thread = Arc::clone(&pipe);
        thread::spawn(move || {
            while ended
                .recv_timeout(RENEWAL)
                .is_err_and(|why| why == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                // That the guard has ended is found by `check`.
                let _ = say(&of_thread, ALIVE);
            }
        });
        Ok(Guard { child, pipe, renewal })
    }

    /// Fails if it no longer runs: the change is undone, or would outlive this process.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => bail!(
                "the process that guards the change has ended, and has undone it: was this one stopped?"
            ),
        }
    }

    /// The change is undone, or is to stay.
    pub fn dismiss(mut self) -> anyhow::Result<()> {
        drop(self.renewal);
        // Not as the error of a pipe: that would be taken for a reader of the output that is gone.
        say(&self.pipe, DONE)
            .map_err(|_| anyhow!("the process that guards the change has ended"))?;
        self.child.wait().context("the guard cannot be waited for")?;
        Ok(())
    }
}

fn say(pipe: &Mutex<ChildStdin>, line: &str) -> io::Result<()> {
    writeln!(pipe.lock().unwrap_or_else(PoisonError::into_inner), "{line}")
}

/// The guard's own life.
pub fn run() -> anyhow::Result<Outcome> {
    // Only the end of the pipe, or of the lease, ends it.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::default())?;
    }
    let mut lines = BufReader::new(io::stdin()).lines();
    let Some(change) = lines.next().transpose()? else { return Ok(Outcome::Done) };
    let change: Applicable =
        serde_json::from_str(&change).context("this is for `heddle advise check` only")?;
    let (to, from) = channel();
    thread::spawn(move || {
        lines.map_while(Result::ok).take_while(|line| to.send(line.clone()).is_ok()).for_each(drop)
    });
    let done = loop {
        match from.recv_timeout(LEASE) {
            Ok(line) if line == DONE => break true,
            Ok(_) => {}
            Err(_) => break false,
        }
    };
    if !done {
        change.set(false)?;
        exit::note(
            "heddle: the command that made the change was killed or stopped: the change is undone",
        );
    }
    Ok(Outcome::Done)
}
