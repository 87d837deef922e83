//! The compilers: each clang for which the pass can be built.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::variant::Variant;

/// What a compiler without probes needs, by Debian's names.
pub(super) const PACKAGES: &str = "clang llvm-dev g++";

/// A clang that compiles with probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// Its name in results: `clang-22`.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its version: `22.1.8`.
    pub version: String,
}

impl Compiler {
    /// Returns the command that compiles a variant; `heddle` is this program, which has `heddle cc`.
    pub(super) fn command(&self, heddle: &Path, variant: Variant) -> Command {
        let mut command = match variant.options() {
            None => Command::new(&self.path),
            Some(options) => {
                let mut command = Command::new(heddle);
                command.arg("cc").args(options).env("HEDDLE_CLANG", &self.path);
                command
            }
        };
        // The user's own options are for the user's builds.
        command.env_remove("HEDDLE_PROBES").arg("-O2");
        command
    }
}

/// Runs a compiler to its end.
///
/// # Errors
/// It cannot be started, or fails; the message has its first complaint.
pub(super) fn compile(mut command: Command, what: &str) -> io::Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start {name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let line = complaint.lines().find(|line| line.contains("error")).or(complaint.lines().next());
    let line = line.unwrap_or("no message").trim();
    Err(io::Error::other(format!(
        "{name} does not compile {what}: {line}; the packages are {PACKAGES} (Debian's names)"
    )))
}
