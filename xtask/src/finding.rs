//! A finding: what a check reports.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Worth a look.
    Warning,
    /// Fails the build.
    Error,
}

/// Which check found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Dependency arrows, rooms of `unsafe`, `no_std`, ignored tests, dead links.
    Structure,
    /// Files that hold more than one idea.
    FileLength,
    /// Lines that are too long.
    LineLength,
    /// Identifiers on the word list.
    Names,
    /// Phrases on the word list.
    Prose,
}

/// Checks that only warn until the whole tree passes them. An empty list makes every rule an error, file length
/// excepted.
const NOT_YET: &[Check] = &[];

impl Check {
    /// All checks, in the order in which a summary lists them.
    pub const ALL: [Check; 5] =
        [Check::Structure, Check::FileLength, Check::LineLength, Check::Names, Check::Prose];

    /// What a finding of this check does to the build.
    fn level(self) -> Level {
        if self == Check::FileLength || NOT_YET.contains(&self) {
            Level::Warning
        } else {
            Level::Error
        }
    }

    /// The heading of its column in a summary.
    pub fn heading(self) -> &'static str {
        match self {
            Check::Structure => "structure",
            Check::FileLength => "long files",
            Check::LineLength => "long lines",
            Check::Names => "names",
            Check::Prose => "prose",
        }
    }
}

/// Something that breaks a rule: where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check that found it.
    pub check: Check,
    /// The file or folder.
    pub path: PathBuf,
    /// The line, if there is one.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Finding {
    /// A finding of `check` in `path`.
    pub fn new(check: Check, path: &Path, line: Option<usize>, message: String) -> Finding {
        Finding { check, path: path.to_path_buf(), line, message }
    }

    /// A break of the structure in `path`.
    pub fn error(path: &Path, line: Option<usize>, message: impl Into<String>) -> Finding {
        Finding::new(Check::Structure, path, line, message.into())
    }

    /// Returns whether it fails the build.
    pub fn is_error(&self) -> bool {
        self.check.level() == Level::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.is_error() { "error" } else { "warning" };
        write!(f, "{level}: {}", self.path.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))?;
        write!(f, ": {}", self.message)
    }
}
