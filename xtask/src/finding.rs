//! What a check says.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Worth a look.
    Warning,
    /// Fails the build.
    Error,
}

/// Something that is not as it should be, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The file or folder.
    pub path: PathBuf,
    /// The line, where there is one.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Finding {
    /// An error in `path`.
    pub fn error(path: &Path, line: Option<usize>, message: impl Into<String>) -> Finding {
        let (path, message) = (path.to_path_buf(), message.into());
        Finding { level: Level::Error, path, line, message }
    }

    /// A warning about `path`.
    pub fn warning(path: &Path, message: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, ..Finding::error(path, None, message) }
    }

    /// Whether it fails the build.
    pub fn is_error(&self) -> bool {
        self.level == Level::Error
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
