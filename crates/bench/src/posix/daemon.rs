//! A server of the distribution as a child process, which is ended by signals.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to shut down before it is killed.
const GRACE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Lines of its log that an error message quotes.
const QUOTED: usize = 6;

/// A running server.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` on `cpus` and waits until `ready` returns something. What the server says goes to the file
    /// `log`.
    ///
    /// # Errors
    /// It does not start, ends or is not ready in time; `stop` is set ([`io::ErrorKind::Interrupted`]).
    pub(crate) fn start<T>(
        command: &Command,
        cpus: &[u32],
        log: &Path,
        stop: &AtomicBool,
        ready: impl FnMut() -> Option<T>,
    ) -> io::Result<(Daemon, T)> {
        let mut command = bound(command);
        let file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // Ctrl-C reaches the bench, which then ends the server.
        command.process_group(0);
        // A process inherits the affinity of the thread that starts it.
        let before = heddle_sys::thread::affinity()?;
        heddle_sys::thread::pin(cpus)?;
        let child = command.spawn();
        heddle_sys::thread::pin(&before)?;
        let mut daemon = Daemon { child: child?, log: log.to_owned() };
        let found = daemon.wait_until(stop, ready)?;
        Ok((daemon, found))
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns `error` with the end of what the server said.
    pub(crate) fn explain(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{error}{}", self.said()))
    }

    fn wait_until<T>(
        &mut self,
        stop: &AtomicBool,
        mut ready: impl FnMut() -> Option<T>,
    ) -> io::Result<T> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if let Some(status) = self.child.try_wait()? {
                let said = self.said();
                return Err(io::Error::other(format!(
                    "ended before it was ready ({status}){said}"
                )));
            }
            match ready() {
                Some(found) => return Ok(found),
                None => thread::sleep(POLL_INTERVAL),
            }
        }
        let (seconds, said) = (PATIENCE.as_secs(), self.said());
        Err(io::Error::other(format!("was not ready after {seconds} s{said}")))
    }

    fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(QUOTED)..];
        last.iter().map(|line| format!("\n    {line}")).collect()
    }

    fn has_ended_within(&mut self, time: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < time {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(POLL_INTERVAL),
                Ok(Some(_)) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

/// Asks it to shut down, and kills it if it does not.
impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // An error means that it has ended.
        pid.map(|pid| kill_process(pid, Signal::TERM));
        if !self.has_ended_within(GRACE) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The same command, with a server that ends if this thread is killed. `setpriv` is in Debian's util-linux, which is on
/// each machine; elsewhere a killed bench leaves its server behind.
fn bound(command: &Command) -> Command {
    let mut found = match Path::new("/usr/bin/setpriv").exists() {
        true => {
            let mut setpriv = Command::new("/usr/bin/setpriv");
            setpriv.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program());
            setpriv
        }
        false => Command::new(command.get_program()),
    };
    found.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => found.env(name, value),
            None => found.env_remove(name),
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, stop: bool, log: &Path) -> io::Result<(Daemon, ())> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("READY", "ready now");
        let cpus = heddle_sys::thread::affinity().unwrap();
        let ready = || fs::read_to_string(log).unwrap().contains("ready now").then_some(());
        Daemon::start(&command, &cpus[..1], log, &AtomicBool::new(stop), ready)
    }

    #[test]
    fn a_server_is_asked_to_end_and_gone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script =
            "trap 'echo bye; exit 0' TERM; nproc; echo $READY; while :; do sleep 0.01; done";
        let (daemon, ()) = start(script, false, &log).unwrap();
        let process = format!("/proc/{}", daemon.pid());
        assert!(Path::new(&process).exists());
        let error = daemon.explain(&io::Error::other("no answer")).to_string();
        assert_eq!(error, "no answer\n    1\n    ready now");
        drop(daemon);
        assert!(!Path::new(&process).exists());
        assert!(fs::read_to_string(&log).unwrap().ends_with("bye\n"));
    }

    #[test]
    fn a_server_that_ends_early_is_quoted_and_a_stop_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let error = start("echo no disk; exit 3", false, &log).unwrap_err().to_string();
        assert!(error.starts_with("ended before it was ready") && error.ends_with("    no disk"));
        let error = start("sleep 600", true, &log).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
