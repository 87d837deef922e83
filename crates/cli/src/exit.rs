//! Exit codes, and how errors reach the user.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// How a command ended if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each subcommand uses those that can happen to it")]
pub enum Outcome {
    /// The request was carried out: 0.
    Done,
    /// It ran, but what it measured must not be quoted: 3.
    Invalid,
    /// Ctrl-C cut it short: 130, as shells report it. A server that drains on Ctrl-C is `Done`.
    Interrupted,
    /// It ran a program that ended with this code (128 plus the number of the signal that ended it).
    Program(u8),
}

impl Outcome {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Invalid => 3,
            Self::Interrupted => 130,
            Self::Program(code) => code,
        }
    }
}

/// Wrong usage found after parsing (an unknown policy, a missing file): exit code 2 instead of 1.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Converts a command's result to the process's exit code, and prints an error.
pub fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    let error = match result {
        Ok(outcome) => return ExitCode::from(outcome.code()),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    note(message(&error).trim_end());
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

/// Writes a line to standard error. It is lost if standard error is gone: then there is no one to read it.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Formats an error: what failed, then each cause that adds something on its own line.
fn message(error: &anyhow::Error) -> String {
    let mut text = format!("heddle: {error}\n");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            let _ = writeln!(text, "  because: {cause}");
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn each_cause_has_its_own_line() {
        let error = Err::<(), _>(io::Error::other("no such device"))
            .context("cannot read results")
            .unwrap_err();
        assert_eq!(message(&error), "heddle: cannot read results\n  because: no such device\n");
        let error = error.context("cannot start: no such device");
        assert_eq!(
            message(&error),
            "heddle: cannot start: no such device\n  because: cannot read results\n"
        );
    }

    #[test]
    fn a_broken_pipe_is_recognised_under_context() {
        let error = Err::<(), _>(io::Error::from(io::ErrorKind::BrokenPipe))
            .context("writing")
            .unwrap_err();
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("something else")));
    }

    #[test]
    fn wrong_usage_is_recognised_under_context() {
        let error = anyhow::Error::new(Usage("unknown policy".into())).context("in --policies");
        assert!(error.is::<Usage>());
    }
}
