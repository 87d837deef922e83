//! Finding programs, and asking them for their version.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Returns the value of an environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Finds a program: by its path if `name` contains a slash, else in `PATH`.
///
/// This program itself, which also runs under the names of compilers, is never found: it would call itself forever.
pub fn program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let name = name.as_ref();
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = env::split_paths(&path).filter(|folder| folder.is_absolute());
    candidates.map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    let metadata = path.metadata();
    metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        && !is_this_program(path)
}

fn is_this_program(path: &Path) -> bool {
    let own = env::current_exe().and_then(|own| own.canonicalize());
    own.is_ok_and(|own| path.canonicalize().is_ok_and(|path| path == own))
}

/// Returns what `program` prints when it is asked `question`.
pub fn ask(program: &Path, question: &[&str]) -> Result<String, Error> {
    let fail = |reason: String| Error::NoAnswer {
        path: program.to_owned(),
        what: question.join(" "),
        reason,
    };
    let mut command = Command::new(program);
    command.args(question).stdin(Stdio::null()).env("LC_ALL", "C");
    let output = command.output().map_err(|error| fail(error.to_string()))?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        return Err(fail(format!("{}; {}", output.status, messages.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_and_by_path_but_not_this_one() {
        let shell = program("sh").expect("there is a shell");
        assert_eq!(program(&shell), Some(shell));
        assert_eq!(program("/etc/passwd"), None, "not executable");
        assert_eq!(program("heddle-no-such-program"), None);
        assert_eq!(program(env::current_exe().unwrap()), None);
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_its_messages() {
        let shell = program("sh").unwrap();
        assert_eq!(ask(&shell, &["-c", "echo 14.0.6"]).unwrap(), "14.0.6");
        let error = ask(&shell, &["-c", "echo no >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 3; no"), "{error}");
    }
}
