//! Errors of the guardian.

use std::io;
use thiserror::Error;

/// Why the guardian could not do what it was asked for. The text says what to do about it.
#[derive(Debug, Error)]
pub enum GuardianError {
    /// The request makes no sense: an unknown policy, a CPU that does not exist.
    #[error("{0}")]
    Usage(String),
    /// The request makes sense but could not be carried out.
    #[error("{0}")]
    Failed(String),
    /// The program to start does not exist.
    #[error("there is no program `{0}`")]
    NoProgram(String),
    /// The program exists but cannot be started.
    #[error("`{0}` cannot be started: {1}")]
    NotExecutable(String, io::Error),
    /// A signal came before there was a program to pass it on to.
    #[error("interrupted while starting")]
    Interrupted,
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl GuardianError {
    /// Returns a function for `map_err`; `what` is the operation.
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
