//! The Go programs: their sources, the installed toolchain, and the built binaries.

use super::system::{System, VARIABLE};
use crate::kv::workdir;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use tempfile::TempDir;

/// The folder of the sources in a checkout.
const SOURCES: &str = "go/bench";
/// Exit code of a program given an unknown setting (invariant I3).
const REFUSAL: i32 = 2;

/// Builds each program on first use, in a folder that is removed with the bench.
#[derive(Debug)]
pub struct Toolchain {
    /// The command `heddle`, whose `go build` adds the scheduler.
    heddle: PathBuf,
    /// The source folder, if given.
    source: Option<PathBuf>,
    folder: OnceLock<TempDir>,
    built: Mutex<BTreeMap<(&'static str, bool), PathBuf>>,
    go: OnceLock<Option<String>>,
    overlay: OnceLock<Option<String>>,
}

impl Toolchain {
    /// `heddle` is this program's file; `source` the folder of the programs' module, by default that of the
    /// checkout in which the bench runs, or from which `heddle` was built.
    #[must_use]
    pub fn new(heddle: PathBuf, source: Option<PathBuf>) -> Toolchain {
        Toolchain {
            heddle,
            source,
            folder: OnceLock::new(),
            built: Mutex::default(),
            go: OnceLock::new(),
            overlay: OnceLock::new(),
        }
    }

    /// Why programs for these systems cannot be built here; `None` if they can. Queries the toolchain once.
    pub fn obstacle(&self, systems: &[System]) -> Option<String> {
        let sources = self.sources().err();
        let go = || self.go.get_or_init(no_go).clone();
        let overlay = || self.overlay.get_or_init(|| self.unsupported()).clone();
        let overlaid = systems.iter().any(System::is_overlaid);
        sources.or_else(go).or_else(|| overlay().filter(|_| overlaid))
    }

    fn sources(&self) -> Result<PathBuf, String> {
        let complete = |folder: &PathBuf| folder.join("go.mod").is_file();
        if let Some(said) = &self.source {
            let said = said.canonicalize().unwrap_or_else(|_| said.clone());
            let missing = || {
                format!(
                    "{} has no go.mod: --source is the folder go/bench of Heddle's sources",
                    said.display()
                )
            };
            return Some(said.clone()).filter(complete).ok_or_else(missing);
        }
        let here = std::env::current_dir().unwrap_or_default();
        let above = here.ancestors().chain(self.heddle.ancestors());
        let missing = || {
            format!(
                "the Go programs' sources ({SOURCES}) are not above this folder: run it in a checkout of \
                 Heddle, or give --source DIR"
            )
        };
        above.map(|folder| folder.join(SOURCES)).find(complete).ok_or_else(missing)
    }

    /// Why the scheduler cannot be added, in the tool's words.
    fn unsupported(&self) -> Option<String> {
        let output = self.command(&self.heddle).args(["go", "check"]).output();
        match output {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("heddle go check refuses: {}", said(&output))),
            Err(error) => Some(format!("cannot start {}: {error}", self.heddle.display())),
        }
    }

    /// A command in the source folder, without the user's `HEDDLE_GO`.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.sources().unwrap_or_default()).env_remove(VARIABLE);
        command.stdin(Stdio::null());
        command
    }

    /// The folder for binaries and data.
    ///
    /// # Errors
    /// The folder for temporary files is not writable.
    pub(super) fn folder(&self) -> io::Result<&Path> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder.path());
        }
        let made = workdir::make()?;
        Ok(self.folder.get_or_init(|| made).path())
    }

    /// The binary of `name` for `system`, built on first use.
    ///
    /// # Errors
    /// The toolchain's error.
    pub(super) fn program(&self, name: &'static str, system: &System) -> io::Result<PathBuf> {
        let overlaid = system.is_overlaid();
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = built.get(&(name, overlaid)) {
            return Ok(file.clone());
        }
        let file =
            self.folder()?.join(format!("{name}-{}", if overlaid { "overlay" } else { "stock" }));
        self.build(name, overlaid, &file)?;
        built.insert((name, overlaid), file.clone());
        Ok(file)
    }

    fn build(&self, name: &str, overlaid: bool, file: &Path) -> io::Result<()> {
        let mut command = self.command(if overlaid { &self.heddle } else { Path::new("go") });
        command
            .args(overlaid.then_some("go"))
            .args(["build", "-o"])
            .arg(file)
            .arg(format!("./{name}"));
        let output = command.output()?;
        let by = if overlaid { "heddle go build" } else { "go build" };
        if !output.status.success() {
            return Err(io::Error::other(format!("{by} cannot build {name}: {}", said(&output))));
        }
        if overlaid && !heeds_settings(file)? {
            return Err(io::Error::other(format!(
                "{by} made a {name} that does not heed {VARIABLE}: nothing would be compared"
            )));
        }
        Ok(())
    }

    /// A command that runs `name` on `system` with `GOMAXPROCS=1`.
    ///
    /// # Errors
    /// Those of [`Toolchain::program`].
    pub(super) fn run(&self, name: &'static str, system: &System) -> io::Result<Command> {
        let mut command = self.command(&self.program(name, system)?);
        command.env("GOMAXPROCS", "1");
        if let Some(value) = system.variable() {
            command.env(VARIABLE, value);
        }
        Ok(command)
    }
}

/// Why there is no toolchain.
fn no_go() -> Option<String> {
    match Command::new("go").arg("version").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("go version fails: {}", said(&output))),
        Err(_) => {
            Some("no Go toolchain: install Go 1.25 or newer, so that `go` is on the path".into())
        }
    }
}

/// Invariant I3: an unknown setting must end it.
fn heeds_settings(program: &Path) -> io::Result<bool> {
    let output = Command::new(program)
        .arg("-help")
        .env(VARIABLE, "quantum=soon")
        .stdin(Stdio::null())
        .output()?;
    Ok(output.status.code() == Some(REFUSAL))
}

/// Lines of a command's output that an error shows.
const SHOWN_LINES: usize = 6;

/// A command's output in one line.
fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    if last.is_empty() { output.status.to_string() } else { last.join("; ") }
}

#[cfg(test)]
#[path = "toolchain_tests.rs"]
mod tests;
