//! One line of the doctor's answer.

use std::borrow::Cow;

use serde::Serialize;

/// Whether the machine has what a check asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has it.
    Yes,
    /// It has it with a limit that matters; `follows` says which.
    Partly,
    /// It does not have it.
    No,
    /// The machine's files do not say.
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

/// What was found about one ability, and what follows from it.
#[derive(Debug, Serialize)]
pub struct Check {
    /// A stable name for scripts.
    pub id: Cow<'static, str>,
    /// Whether the machine has it.
    pub state: State,
    /// The observation, with its numbers.
    pub found: String,
    /// What it means for a user of Heddle, and what to do about it where something can be done.
    pub follows: String,
}

impl Check {
    /// A check's outcome.
    pub fn new(
        id: impl Into<Cow<'static, str>>,
        state: State,
        found: impl Into<String>,
        follows: impl Into<String>,
    ) -> Self {
        Self { id: id.into(), state, found: found.into(), follows: follows.into() }
    }
}
