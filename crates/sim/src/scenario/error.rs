//! Errors in a scenario, with their place.

use std::fmt;

/// Where a value of a scenario was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// In a file; for a shipped scenario, its name.
    File {
        /// The file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
    },
    /// On the command line, or by a caller: `--load`.
    Flag(String),
}

/// A scenario that cannot be run: the place, the problem, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The place; `None` if nothing was written, or the scenario came from code.
    pub place: Option<ValueSource>,
    /// The problem, and what would be right.
    pub problem: String,
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            ValueSource::Flag(flag) => f.write_str(flag),
        }
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl ValueSource {
    /// Returns the place of the byte `at` of `text`.
    pub(super) fn at(name: &str, text: &str, at: usize) -> ValueSource {
        let before = text.get(..at).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        ValueSource::File {
            name: name.into(),
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }
}
