//! What can go wrong before a compiler runs.

use std::io;
use std::path::PathBuf;

/// Why a program cannot be compiled with probes. Each message says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A command line, or a variable, that is not valid or not supported.
    #[error("{0}")]
    Usage(String),
    /// No such compiler is installed.
    #[error("there is no {name}{origin}; {remedy}")]
    NoCompiler {
        /// The program that was looked for.
        name: String,
        /// Where it was looked for.
        origin: String,
        /// What to install or set.
        remedy: String,
    },
    /// A compiler that cannot load the pass.
    #[error("{} cannot compile with probes: {reason}", path.display())]
    Unsupported {
        /// The compiler.
        path: PathBuf,
        /// What about it is not supported, and what is.
        reason: String,
    },
    /// LLVM's headers are missing.
    #[error(
        "no headers of LLVM {major}, with which the probe pass for {compiler} is built; install them (Debian and \
         Ubuntu: llvm-{major}-dev), so that llvm-config-{major} is in PATH"
    )]
    NoHeaders {
        /// The major version.
        major: u32,
        /// The compiler that needs the pass.
        compiler: String,
    },
    /// There is no C++ compiler to build the pass with.
    #[error("no C++ compiler to build the probe pass with; install g++ or clang")]
    NoPluginCompiler,
    /// A program that answers questions about itself did not.
    #[error("cannot ask {} for its version ({what}): {reason}", path.display())]
    NoAnswer {
        /// The program.
        path: PathBuf,
        /// The option that asks.
        what: String,
        /// Its messages, or the system's reason.
        reason: String,
    },
    /// No folder for the built pass.
    #[error(
        "no folder for the probe pass: none of HEDDLE_CACHE_DIR, XDG_CACHE_HOME and HOME is set; set HEDDLE_CACHE_DIR"
    )]
    NoCache,
    /// The folder for the built pass cannot be written.
    #[error(
        "cannot write {}, which keeps the probe pass: {source}; set HEDDLE_CACHE_DIR or XDG_CACHE_HOME to a folder \
         that can be written",
        path.display()
    )]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The source that `HEDDLE_PROBES_SOURCE` names cannot be read.
    #[error("cannot read {}, which HEDDLE_PROBES_SOURCE names: {source}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The pass could not be compiled.
    #[error("{command} cannot compile the probe pass for LLVM {major}:\n{messages}")]
    Build {
        /// The C++ compiler.
        command: String,
        /// LLVM's major version.
        major: u32,
        /// The compiler's messages.
        messages: String,
    },
    /// The source of a release of tokio cannot be read.
    #[error(
        "tokio {version}: cannot read {}: {source}; remove the release from cargo's registry, so that it is fetched \
         again",
        path.display()
    )]
    Tokio {
        /// The release.
        version: String,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// An edit does not fit a release of tokio.
    #[error(
        "tokio {version} is not supported: {file}: anchor {anchor:?}: found {occurrences} times, want 1; its source is \
         not the release's, or this Heddle is for others: see if there is a newer one"
    )]
    Anchor {
        /// The release.
        version: String,
        /// The file, below the package's folder.
        file: &'static str,
        /// The text that must occur once.
        anchor: &'static str,
        /// How often it does.
        occurrences: usize,
    },
    /// A report of the pass cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A line of a report is not one that the pass writes.
    #[error(
        "{}, line {line}: {source}; it is not a report of the probe pass (--heddle-report), or a compiler is still \
         writing to it",
        path.display()
    )]
    ReportLine {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// Where the line deviates.
        source: serde_json::Error,
    },
}

impl Error {
    /// Returns whether the user asked for what is not supported (exit code 2), as opposed to a failure (1).
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Usage(_)
                | Self::NoCompiler { .. }
                | Self::Unsupported { .. }
                | Self::NoHeaders { .. }
                | Self::Anchor { .. }
        )
    }
}
