//! The share of a run: its file, its broker, and what the broker reports.

use crate::posix::daemon::Daemon;
use heddle_sys::scheduling::{self, Scheduling};
use serde::Deserialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use tempfile::TempDir;

/// A broker without applications ends after this, should the bench be killed.
const UNTIL_IDLE: &str = "20s";

/// Whether the workers of a share are real-time threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Realtime {
    Always,
    Never,
}

/// A share of one CPU, whose broker runs.
#[derive(Debug)]
pub(super) struct Share {
    broker: Daemon,
    folder: TempDir,
}

impl Share {
    /// Starts a broker for `cpu`, which runs there or on `on`.
    ///
    /// # Errors
    /// It does not start, with its own words; `stop` is set ([`io::ErrorKind::Interrupted`]).
    pub(super) fn start(
        program: &Path,
        (cpu, on): (u32, u32),
        realtime: Realtime,
        stop: &AtomicBool,
    ) -> io::Result<Share> {
        let folder = tempfile::Builder::new().prefix("heddle-share-").tempdir()?;
        let file = folder.path().join("share.toml");
        fs::write(&file, text(cpu, realtime, &folder.path().join("socket")))?;
        let mut command = Command::new(program);
        command.args(["share", "serve"]).arg(&file).args(["--until-idle", UNTIL_IDLE]);
        let log = folder.path().join("log");
        let answers = || Status::of(program, &file).ok().map(drop);
        // It may give only CPUs that it has itself.
        let started = Daemon::start(&command, &[cpu, on], &log, stop, answers);
        let (broker, ()) = started.map_err(|error| one_line(&error))?;
        Ok(Share { broker, folder })
    }

    /// Returns the file that describes it.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("share.toml")
    }

    /// Returns the broker's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Returns the broker's process.
    pub(super) fn pid(&self) -> u32 {
        self.broker.pid()
    }
}

/// Returns `error` with a message that fits into a table.
fn one_line(error: &io::Error) -> io::Error {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    io::Error::new(error.kind(), lines.join(": "))
}

fn text(cpu: u32, realtime: Realtime, socket: &Path) -> String {
    let realtime = match realtime {
        Realtime::Always => "always",
        Realtime::Never => "never",
    };
    format!(
        "cpus = \"{cpu}\"\npolicy = \"priority\"\nrealtime = \"{realtime}\"\nsocket = \"{}\"\n",
        socket.display()
    )
}

/// What the broker reports: as much of it as the bench reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Status {
    pub(super) apps: Vec<App>,
}

/// An application of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct App {
    pub(super) pid: u32,
    pub(super) cpus: Vec<OnCpu>,
}

/// What it says of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct OnCpu {
    pub(super) waited_ns: u64,
    pub(super) longest_wait_ns: u64,
    pub(super) switches: u64,
    pub(super) broken: u64,
}

impl Status {
    /// Asks the broker of the share that `file` describes.
    ///
    /// # Errors
    /// It does not answer, with the reason.
    pub(super) fn of(program: &Path, file: &Path) -> io::Result<Status> {
        let mut command = Command::new(program);
        command.args(["share", "status"]).arg(file).arg("--json").stdin(Stdio::null());
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("heddle share status gives no reason");
            return Err(io::Error::other(line.to_owned()));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Returns how many hand-overs of all applications broke the Single Binding Rule.
    pub(super) fn broken(&self) -> u64 {
        self.apps.iter().flat_map(|app| &app.cpus).map(|cpu| cpu.broken).sum()
    }

    /// Returns how long the application of process `pid` waits for the CPU, if it ever did.
    pub(super) fn waits(&self, pid: u32) -> Option<Waits> {
        let app = self.apps.iter().find(|app| app.pid == pid)?;
        let cpu = app.cpus.first().filter(|cpu| cpu.switches > 0)?;
        let mean_ns = cpu.waited_ns as f64 / cpu.switches as f64;
        Some(Waits { mean_ns, longest_ns: cpu.longest_wait_ns as f64 })
    }
}

/// How long an application waits for a CPU that it wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Waits {
    pub(super) mean_ns: f64,
    pub(super) longest_ns: f64,
}

/// Returns why this process cannot have real-time threads; `None` if it can.
pub(super) fn no_realtime() -> Option<String> {
    let raised = || scheduling::set(0, Scheduling::fifo(1));
    let raised = thread::scope(|scope| scope.spawn(raised).join()).unwrap_or(Ok(()));
    let why =
        |error| format!("threads cannot be real-time ({error}): it takes root or CAP_SYS_NICE");
    raised.err().map(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_the_cpu_and_the_socket() {
        let text = text(3, Realtime::Never, Path::new("/tmp/x/socket"));
        assert_eq!(
            text,
            "cpus = \"3\"\npolicy = \"priority\"\nrealtime = \"never\"\nsocket = \"/tmp/x/socket\"\n"
        );
    }

    #[test]
    fn an_error_is_one_line() {
        let error = io::Error::other("ended early\n    heddle: no such CPU");
        assert_eq!(one_line(&error).to_string(), "ended early: heddle: no such CPU");
    }

    #[test]
    fn the_broken_hand_overs_of_all_are_added_and_waits_are_of_one() {
        let json = r#"{"schema": 1, "apps": [
            {"pid": 7, "name": "a", "cpus": [
                {"cpu": 0, "waited_ns": 900, "longest_wait_ns": 500, "switches": 3, "broken": 2}]},
            {"pid": 8, "name": "b", "cpus": [
                {"cpu": 0, "waited_ns": 0, "longest_wait_ns": 0, "switches": 0, "broken": 1}]}]}"#;
        let status: Status = serde_json::from_str(json).unwrap();
        assert_eq!(status.broken(), 3);
        assert_eq!(status.waits(7), Some(Waits { mean_ns: 300.0, longest_ns: 500.0 }));
        assert_eq!((status.waits(8), status.waits(9)), (None, None));
    }
}
