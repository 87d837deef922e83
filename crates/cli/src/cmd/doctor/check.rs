//! One line of the doctor's output.

use std::borrow::Cow;

use serde::Serialize;

/// Whether the machine has what a check looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Yes,
    /// It does, with a limitation that matters; `follows` names it.
    Partly,
    /// It does not.
    No,
    /// Unknown: the machine's files do not say.
    Unknown,
}

impl State {
    /// The word in the text output, and its colour as a terminal escape.
    pub fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Yes => ("yes", "\x1b[32m"),
            Self::Partly => ("partly", "\x1b[33m"),
            Self::No => ("no", "\x1b[31m"),
            Self::Unknown => ("?", "\x1b[2m"),
        }
    }
}

/// A finding about one capability, and its consequence.
#[derive(Debug, Serialize)]
pub struct Check {
    /// A stable name for scripts.
    pub id: Cow<'static, str>,
    /// Whether the machine has it.
    pub state: State,
    /// The observation, with its numbers.
    pub found: String,
    /// What it means for a user of Heddle, and what to do about it, if anything.
    pub follows: String,
}

impl Check {
    /// Returns a finding.
    pub fn new(
        id: impl Into<Cow<'static, str>>,
        state: State,
        found: impl Into<String>,
        follows: impl Into<String>,
    ) -> Self {
        Self { id: id.into(), state, found: found.into(), follows: follows.into() }
    }
}
