//! A child that says in a line when it is ready, and ends when it is told to.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longer than an agent takes to start on an emulated machine.
const STARTING: Duration = Duration::from_secs(90);
/// How long a child may take to end, a guardian to give its threads back.
const GRACE: Duration = Duration::from_secs(20);

/// The child. Ended when it is dropped.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    /// Whether the end of its input ends it; otherwise SIGINT does.
    by_input: bool,
}

impl Process {
    /// Starts `command`, and returns it with its first line of output.
    ///
    /// # Errors
    /// It does not start, or ends before it says anything: with what it wrote on standard error.
    pub(super) fn start(mut command: Command, by_input: bool) -> io::Result<(Process, String)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, out) = (child.stdin.take(), child.stdout.take());
        let mut process = Process { child, input, by_input };
        match out.map_or(Ok(None), first_line)? {
            Some(line) => Ok((process, line)),
            None => Err(process.said()),
        }
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Why it said nothing.
    fn said(&mut self) -> io::Error {
        self.end();
        let mut text = String::new();
        if let Some(error) = &mut self.child.stderr {
            // What can be read of it will do.
            let _ = error.read_to_string(&mut text);
        }
        let text = text.trim().replace('\n', " | ");
        io::Error::other(format!("it did not start: {text}"))
    }

    fn end(&mut self) {
        drop(self.input.take());
        let pid = Pid::from_child(&self.child);
        if !self.by_input && matches!(self.child.try_wait(), Ok(None)) {
            // An error means that it has just ended.
            let _ = kill_process(pid, Signal::INT);
        }
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begin.elapsed() > GRACE {
                let _ = kill_process(pid, Signal::KILL);
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The first line; none if the output ends before, or none comes. The rest is read, so that its writer never waits.
fn first_line(out: ChildStdout) -> io::Result<Option<String>> {
    let (sender, lines) = channel();
    std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            // Only the first one is waited for.
            let _ = sender.send(line);
        }
    })?;
    match lines.recv_timeout(STARTING) {
        Ok(line) => Ok(Some(line)),
        Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_is_ready_with_its_first_line_and_ends_with_its_input() {
        let (process, line) = Process::start(shell("echo ready; cat; echo over"), true).unwrap();
        assert_eq!(line, "ready");
        let pid = process.pid();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_that_says_nothing_is_an_error_with_its_reason() {
        let error = Process::start(shell("echo broken >&2; exit 3"), true).err().unwrap();
        assert!(error.to_string().contains("broken"), "{error}");
    }

    #[test]
    fn a_child_without_an_end_is_interrupted() {
        let ready = "trap 'exit 0' INT; echo ready; while :; do sleep 0.01; done";
        let (process, _) = Process::start(shell(ready), false).unwrap();
        let pid = process.pid();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
