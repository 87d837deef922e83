//! A load that runs, under its guardian or alone.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a guardian may take to give threads back.
const GRACE: Duration = Duration::from_secs(5);
/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lines of standard error that a message quotes.
const QUOTED: usize = 6;

/// A process in a group of its own, whose output is kept. Ended when it is dropped.
pub struct Running {
    child: Child,
    out: Option<JoinHandle<Vec<String>>>,
    err: Option<JoinHandle<Vec<String>>>,
}

/// Why a wait ended without a result.
fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
}

impl Running {
    /// Starts `command`.
    ///
    /// # Errors
    /// System errors.
    pub fn start(mut command: Command) -> io::Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn()?;
        let out = child.stdout.take().map(gather);
        let err = child.stderr.take().map(gather);
        Ok(Running { child, out, err })
    }

    /// The process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until it ends; returns the lines that it printed.
    ///
    /// # Errors
    /// It failed, did not end within `limit`, or `stop` was set.
    pub fn finish(mut self, limit: Duration, stop: &AtomicBool) -> io::Result<Vec<String>> {
        let status = self.wait(limit, stop)?;
        let printed = lines(self.out.take());
        if status.success() {
            return Ok(printed);
        }
        let said = lines(self.err.take());
        let from = said.len().saturating_sub(QUOTED);
        Err(io::Error::other(format!("{status}: {}", said[from..].join(" | "))))
    }

    fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> io::Result<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(LOOK_EVERY);
        }
        Err(io::Error::other(format!("not done after {} s", limit.as_secs())))
    }
}

impl Drop for Running {
    /// First in order, so that a guardian returns its threads; then the rest of the group.
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        if matches!(self.child.try_wait(), Ok(None)) {
            // An error means that it has just ended.
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.wait(GRACE, &AtomicBool::new(false));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Reads a stream to its end, so that its writer never waits for a reader.
fn gather(stream: impl Read + Send + 'static) -> JoinHandle<Vec<String>> {
    thread::spawn(move || BufReader::new(stream).lines().map_while(Result::ok).collect())
}

fn lines(reader: Option<JoinHandle<Vec<String>>>) -> Vec<String> {
    reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::start(command).unwrap()
    }

    /// Whether any process of `group` is more than a zombie: reaping a test's orphans is not up to the test.
    fn lives(group: Pid) -> bool {
        let wanted = group.as_raw_nonzero().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = processes.filter_map(|p| std::fs::read_to_string(p.path().join("stat")).ok());
        let of_group = |stat: &String| {
            let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
            let (state, group) = (fields.next(), fields.nth(1));
            group == Some(&wanted) && state != Some("Z")
        };
        stats.into_iter().any(|stat| of_group(&stat))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_comes_and_failures_quote_what_was_said() {
        let go = AtomicBool::new(false);
        assert_eq!(shell("echo a; echo b").finish(LONG, &go).unwrap(), ["a", "b"]);
        let mut failing = shell("echo broken >&2; exit 3");
        while !failing.has_ended() {
            thread::sleep(LOOK_EVERY);
        }
        let error = failing.finish(LONG, &go).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }

    #[test]
    fn an_overdue_load_is_ended_with_its_children() {
        let running = shell("sleep 1000 & echo $!; wait");
        let group = Pid::from_child(&running.child);
        let error = running.finish(Duration::from_millis(200), &AtomicBool::new(false));
        assert!(error.unwrap_err().to_string().contains("not done"));
        let begin = Instant::now();
        while lives(group) {
            assert!(begin.elapsed() < LONG, "its child lives");
            thread::sleep(LOOK_EVERY);
        }
        assert!(!shell("sleep 1000").has_ended());
        let stopped = shell("sleep 1000").finish(LONG, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
