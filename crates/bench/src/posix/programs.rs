//! The programs: C sources that are compiled when they are needed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// The packages of the compiler, by Debian's names.
const PACKAGES: &str = "gcc libc6-dev";
const HEADER: (&str, &str) = ("program.h", include_str!("programs/program.h"));

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Micro,
    Schbench,
    Compute,
    First,
    Server,
    Batch,
}

impl Program {
    #[cfg(test)]
    pub(super) const ALL: [Program; 6] = [
        Program::Micro,
        Program::Schbench,
        Program::Compute,
        Program::First,
        Program::Server,
        Program::Batch,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Program::Micro => "micro",
            Program::Schbench => "schbench",
            Program::Compute => "compute",
            Program::First => "first",
            Program::Server => "server",
            Program::Batch => "batch",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Program::Micro => include_str!("programs/micro.c"),
            Program::Schbench => include_str!("programs/schbench.c"),
            Program::Compute => include_str!("programs/compute.c"),
            Program::First => include_str!("programs/first.c"),
            Program::Server => include_str!("programs/server.c"),
            Program::Batch => include_str!("programs/batch.c"),
        }
    }
}

/// The compiled programs, in a temporary folder.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    folder: OnceLock<TempDir>,
}

impl Programs {
    /// Returns the file of `program`, compiled at its first use.
    ///
    /// # Errors
    /// There is no compiler, or it fails.
    pub(crate) fn path(&self, program: Program) -> io::Result<PathBuf> {
        let folder = self.folder()?;
        let path = folder.join(program.name());
        if !path.exists() {
            compile(program, folder, &[])?;
        }
        Ok(path)
    }

    fn folder(&self) -> io::Result<&Path> {
        if self.folder.get().is_none() {
            let made = tempfile::Builder::new().prefix("heddle-posix-").tempdir()?;
            // Another thread may have been faster; its folder serves as well.
            let _ = self.folder.set(made);
        }
        Ok(self.folder.get().map(TempDir::path).expect("set above"))
    }
}

/// Compiles `program` in `folder`; `warnings` are additional options.
pub(super) fn compile(program: Program, folder: &Path, warnings: &[&str]) -> io::Result<()> {
    let source = folder.join(program.name()).with_extension("c");
    fs::write(folder.join(HEADER.0), HEADER.1)?;
    fs::write(&source, program.source())?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-pthread"]).args(warnings).arg("-o").arg(program.name()).arg(&source);
    let output = command.current_dir(folder).stdin(Stdio::null()).output().map_err(no_compiler)?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let line = complaint.lines().find(|line| line.contains("error")).or(complaint.lines().next());
    let (name, line) = (program.name(), line.unwrap_or("no message").trim());
    Err(io::Error::other(format!("cc does not compile {name}.c: {line}; install {PACKAGES}")))
}

fn no_compiler(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("no C compiler `cc`: install {PACKAGES}"))
        }
        kind => io::Error::new(kind, format!("cannot start cc: {error}")),
    }
}
