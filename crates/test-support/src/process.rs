//! Child processes.

use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// How long a child may take to end after SIGTERM, before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// A child process. Dropping it sends SIGTERM, then SIGKILL if it has not ended within ten seconds, and reaps it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: Option<NamedTempFile>,
}

impl Running {
    /// Starts `command` as it is.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let child = command.spawn();
        child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")).into()
    }

    /// Starts `command` without its output.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start_quietly(command: &mut Command) -> Running {
        Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts `command` without its standard output; [`Running::stderr`] returns its standard error.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start_logged(command: &mut Command) -> Running {
        let file = NamedTempFile::new().expect("a temporary file can be made");
        command.stdout(Stdio::null()).stderr(file.reopen().expect("the file is there"));
        let mut running = Running::start(command);
        running.stderr = Some(file);
        running
    }

    /// Returns what it has written to standard error so far.
    ///
    /// # Panics
    /// If it was not started by [`Running::start_logged`].
    #[track_caller]
    pub fn stderr(&self) -> String {
        let file = self.stderr.as_ref().expect("started by start_logged");
        let bytes = std::fs::read(file.path()).expect("the file is there");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its pipes and what else `std` knows of it.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends `signal`.
    ///
    /// # Panics
    /// If the process cannot be signalled. It stays a zombie until it is waited for, so it is there until then.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child can be signalled");
    }

    /// Returns whether it has ended, and reaps it then.
    pub fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`](crate::PATIENCE).
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        crate::until("the child ends", || self.has_ended());
        self.status().expect("it has ended")
    }

    /// Waits until it ends; returns its exit code as shells do: 128 and the number of the signal that ended it.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`](crate::PATIENCE).
    #[track_caller]
    pub fn exit_code(&mut self) -> i32 {
        let status = self.wait();
        status.code().or(status.signal().map(|n| 128 + n)).expect("it exited or was killed")
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Running {
        Running { child, stderr: None }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        if !has_ended(&mut self.child) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let begin = Instant::now();
            while !has_ended(&mut self.child) && begin.elapsed() < GRACE {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Returns whether the process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Runs `command` to its end and returns what it printed on standard output.
///
/// # Panics
/// If it cannot be started or fails; with all that it printed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// Finds an installed program in `PATH` or `/usr/sbin`. If there is none, prints "skipped" and the script that
/// installs it.
pub fn find_program(name: &str, installer: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no {name} ({installer})");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        Running::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(shell("exit 3").exit_code(), 3);
        let mut sleeping = shell("exec sleep 1000");
        assert!(!sleeping.has_ended());
        sleeping.signal(Signal::KILL);
        assert_eq!(sleeping.exit_code(), 137);
        assert!(sleeping.has_ended());
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = shell("exec sleep 1000");
        let pid = child.pid();
        assert!(is_alive(pid));
        drop(child);
        assert!(!is_alive(pid));
    }

    #[test]
    fn a_dropped_child_may_clean_up() {
        let folder = crate::temp_dir();
        let [ready, cleaned] = ["ready", "cleaned"].map(|name| folder.path().join(name));
        let (begin, end) = (ready.display(), cleaned.display());
        let script =
            format!("trap 'touch {end}; exit' TERM; touch {begin}; while :; do sleep 0.01; done");
        let child = shell(&script);
        crate::until("the trap is set", || ready.exists());
        drop(child);
        assert!(cleaned.exists());
    }

    #[test]
    fn a_logged_child_can_be_read_while_it_runs() {
        let mut child = Running::start_logged(
            Command::new("sh")
                .args(["-c", "echo begin >&2; read _; echo end >&2"])
                .stdin(Stdio::piped()),
        );
        crate::until("it has begun", || child.stderr() == "begin\n");
        drop(child.child().stdin.take());
        assert_eq!(child.exit_code(), 0);
        assert_eq!(child.stderr(), "begin\nend\n");
    }

    #[test]
    fn run_returns_the_output() {
        assert_eq!(run(Command::new("echo").arg("yes")), "yes\n");
    }

    #[test]
    #[should_panic(expected = "exit status: 7\nout\nerr\n")]
    fn run_fails_with_the_output() {
        run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]));
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(find_program("sh", "-").is_some());
        assert!(find_program("no-such-program", "-").is_none());
    }
}
