//! The batch program: threads that compute forever.

use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::thread::pin;
use serde::Deserialize;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Its threads.
pub(super) const THREADS: u32 = 2;
/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end.
const GRACE: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How the kernel schedules a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) cpus: Vec<u32>,
    pub(super) scheduling: Scheduling,
    pub(super) nice: i32,
}

impl Placement {
    /// As an ordinary process on `cpus`.
    pub(super) fn on(cpus: &[u32]) -> Placement {
        Placement { cpus: cpus.into(), scheduling: Scheduling::ORDINARY, nice: 0 }
    }

    /// Runs `start` in a thread that is placed so: processes inherit it.
    ///
    /// # Errors
    /// The thread cannot be placed so.
    pub(super) fn start<T: Send>(&self, start: impl FnOnce() -> T + Send) -> io::Result<T> {
        let there = || {
            pin(&self.cpus)?;
            if self.nice != 0 {
                scheduling::set_nice(0, self.nice)?;
            }
            if self.scheduling != Scheduling::ORDINARY {
                scheduling::set(0, self.scheduling)?;
            }
            Ok(start())
        };
        thread::scope(|scope| scope.spawn(there).join())
            .unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
    }
}

/// The running program. It ends with its standard input: so also if the bench is killed.
#[derive(Debug)]
pub(super) struct Batch {
    child: Child,
    lines: Receiver<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Progress {
    steps: f64,
    ns: f64,
}

impl Progress {
    /// Returns the steps per second since `before`.
    pub(super) fn rate_since(self, before: Progress) -> f64 {
        (self.steps - before.steps) * 1e9 / (self.ns - before.ns).max(1.0)
    }
}

impl Batch {
    /// Starts `command`, and waits until it computes.
    ///
    /// # Errors
    /// It does not start, or says nothing.
    pub(super) fn start(mut command: Command, placement: &Placement) -> io::Result<Batch> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = placement.start(|| command.spawn())??;
        let lines = child.stdout.take().map(lines_of).expect("standard output was piped");
        let mut batch = Batch { child, lines };
        let begin = Instant::now();
        while batch.progress()?.steps == 0.0 {
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other("the batch program does not compute"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(batch)
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks how far it is.
    ///
    /// # Errors
    /// It has ended, or does not answer.
    pub(super) fn progress(&mut self) -> io::Result<Progress> {
        let ended = || io::Error::other("the batch program has ended");
        self.child.stdin.as_mut().ok_or_else(ended)?.write_all(b"\n")?;
        let line = self.lines.recv_timeout(PATIENCE);
        let line = line.map_err(|_| io::Error::other("the batch program does not answer"))?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < GRACE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(POLL_INTERVAL),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands on the lines of `pipe` until it is closed.
fn lines_of(pipe: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let each = BufReader::new(pipe).lines().map_while(Result::ok);
        each.map(|line| sender.send(line)).take_while(Result::is_ok).count()
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::programs::{Program, Programs};

    #[test]
    fn the_rate_is_of_the_time_in_between() {
        let [before, after] =
            [(100.0, 1e9), (350.0, 3e9)].map(|(steps, ns)| Progress { steps, ns });
        assert_eq!(after.rate_since(before), 125.0);
    }

    #[test]
    fn the_program_computes_reports_and_ends() {
        let programs = Programs::default();
        let path = match programs.path(Program::Batch) {
            Ok(path) => path,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut command = Command::new(path);
        command.arg(THREADS.to_string());
        let cpu = heddle_sys::thread::affinity().unwrap()[0];
        let placement = Placement { nice: 1, ..Placement::on(&[cpu]) };
        let mut batch = Batch::start(command, &placement).unwrap();
        let (before, pid) = (batch.progress().unwrap(), batch.pid());
        assert_eq!(scheduling::nice(pid).unwrap(), 1);
        while batch.progress().unwrap().steps == before.steps {}
        drop(batch);
        assert!(scheduling::nice(pid).is_err(), "it has ended");
    }

    #[test]
    fn a_program_that_says_nothing_is_an_error() {
        let cpu = heddle_sys::thread::affinity().unwrap()[0];
        let error = Batch::start(Command::new("/bin/false"), &Placement::on(&[cpu])).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}
