//! What the guardian refuses, and why.

use std::io;
use thiserror::Error;

/// Why the guardian did not do what it was asked for. The text says what to do about it.
#[derive(Debug, Error)]
pub enum GuardianError {
    /// What was asked for makes no sense: an unknown policy, a CPU that is not there.
    #[error("{0}")]
    Usage(String),
    /// It makes sense, and could not be done.
    #[error("{0}")]
    Failed(String),
    /// The program to start is not there.
    #[error("there is no program `{0}`")]
    NoProgram(String),
    /// The program is there and cannot be started.
    #[error("`{0}` cannot be started: {1}")]
    NotExecutable(String, io::Error),
    /// A signal came before there was a program to pass it on to.
    #[error("interrupted while starting")]
    Interrupted,
    /// The kernel said no.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl GuardianError {
    /// For `map_err`: `what` was tried.
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::System { what, source: source.into() }
    }
}

impl From<crate::BackendError> for GuardianError {
    fn from(error: crate::BackendError) -> Self {
        Self::Failed(error.to_string())
    }
}
