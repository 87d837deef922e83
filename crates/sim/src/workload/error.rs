//! Errors in a workload.

use super::{FileError, GrammarError, MixError};
use std::fmt::Display;

/// An invalid workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The text does not follow the grammar.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// The parts do not make a mix.
    #[error(transparent)]
    Mix(#[from] MixError),
    /// A file that the text names cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {given}; it must be {allowed}")]
pub struct OutOfRange {
    /// The name of the parameter.
    pub argument: &'static str,
    /// Its value.
    pub given: String,
    /// What is allowed.
    pub allowed: &'static str,
}

impl OutOfRange {
    pub(super) fn unless(
        good: bool,
        argument: &'static str,
        given: impl Display,
        allowed: &'static str,
    ) -> Result<(), OutOfRange> {
        match good {
            true => Ok(()),
            false => Err(OutOfRange { argument, given: given.to_string(), allowed }),
        }
    }
}
