//! Rules: `be=compact*`, `lc=pid:4711`, `3=worker?`, `be=work:3`.

use super::name;
use heddle_core::{Class, glob};
use std::str::FromStr;
use thiserror::Error;

/// The threads that a [`Rule`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Threads with such a name; `*` is any text, `?` any character.
    Name(String),
    /// Threads of this process (`pid:`).
    Process(u32),
    /// Threads with this work now (`work:`), by their executor's line; any number but 0.
    Work(u32),
}

impl Pattern {
    /// Whether a thread of process `tgid` with that name fits, whatever its work.
    pub(super) fn fits(&self, tgid: u32, name: Option<&str>) -> bool {
        match self {
            Pattern::Name(pattern) => name.is_some_and(|name| glob::fits(pattern, name)),
            Pattern::Process(process) => *process == tgid,
            Pattern::Work(_) => false,
        }
    }
}

/// Assigns a class to some threads. Written `CLASS=PATTERN`: the class is `lc`, `be` or a number from 0 to 255, the
/// pattern a name with `*` and `?`, `pid:NUMBER` or `work:NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The class.
    pub class: Class,
    /// The threads.
    pub pattern: Pattern,
}

/// What is wrong with the text of a rule.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RuleError {
    /// There is no `=`, or nothing on one side of it.
    #[error(
        "`{0}` is not a class rule: write CLASS=PATTERN, as in be=compact*, 3=worker?, lc=pid:4711 or be=work:3"
    )]
    Form(String),
    /// The part before `=` is not a class.
    #[error("`{given}` in `{rule}` is not a class: use lc, be or a number from 0 to 255")]
    Class {
        /// The given class.
        given: String,
        /// The whole rule.
        rule: String,
    },
    /// The text after `pid:` or `work:` is not a number.
    #[error("`{given}` in `{rule}` is not a {what}: use a number from 1 to 4294967295")]
    Number {
        /// What the number should be of.
        what: &'static str,
        /// The given text.
        given: String,
        /// The whole rule.
        rule: String,
    },
    /// No thread can have such a name.
    #[error(
        "no thread's name fits `{given}` in `{rule}`: the kernel keeps {} bytes of a name",
        name::BYTES
    )]
    TooLong {
        /// The pattern.
        given: String,
        /// The whole rule.
        rule: String,
    },
}

fn class(given: &str) -> Option<Class> {
    match given {
        "lc" => Some(Class::LC),
        "be" => Some(Class::BE),
        number => number.parse().ok().map(Class),
    }
}

fn number(rule: &str, what: &'static str, given: &str) -> Result<u32, RuleError> {
    let number = given.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| RuleError::Number { what, given: given.into(), rule: rule.into() })
}

fn pattern(rule: &str, given: &str) -> Result<Pattern, RuleError> {
    if let Some(process) = given.strip_prefix("pid:") {
        return number(rule, "process", process).map(Pattern::Process);
    }
    if let Some(work) = given.strip_prefix("work:") {
        return number(rule, "class of work", work).map(Pattern::Work);
    }
    if glob::least_bytes(given) > name::BYTES {
        return Err(RuleError::TooLong { given: given.into(), rule: rule.into() });
    }
    Ok(Pattern::Name(given.into()))
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let form = || RuleError::Form(text.into());
        let (before, after) = text.split_once('=').ok_or_else(form)?;
        if before.is_empty() || after.is_empty() {
            return Err(form());
        }
        let unknown = || RuleError::Class { given: before.into(), rule: text.into() };
        Ok(Rule { class: class(before).ok_or_else(unknown)?, pattern: pattern(text, after)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Rule, String> {
        text.parse().map_err(|error: RuleError| error.to_string())
    }

    #[test]
    fn each_form_is_read() {
        let name = |pattern: &str| Pattern::Name(pattern.into());
        for (text, class, pattern) in [
            ("be=compact*", 1, name("compact*")),
            ("lc=serve-*", 0, name("serve-*")),
            ("3=worker?", 3, name("worker?")),
            ("255=a=b", 255, name("a=b")),
            ("lc=pid:4711", 0, Pattern::Process(4711)),
            ("be=work:3", 1, Pattern::Work(3)),
        ] {
            assert_eq!(rule(text), Ok(Rule { class: Class(class), pattern }), "{text}");
        }
    }

    #[test]
    fn an_error_says_what_was_wrong_and_what_is_right() {
        for text in ["compact*", "=x", "be=", ""] {
            assert!(
                rule(text)
                    .unwrap_err()
                    .starts_with(&format!("`{text}` is not a class rule: write"))
            );
        }
        for (text, expected) in [
            ("fast=x", "`fast` in `fast=x` is not a class: use lc, be or a number from 0 to 255"),
            ("256=x", "`256` in `256=x` is not a class: use lc, be or a number from 0 to 255"),
            ("be=pid:x", "`x` in `be=pid:x` is not a process: use a number from 1 to 4294967295"),
            (
                "be=work:0",
                "`0` in `be=work:0` is not a class of work: use a number from 1 to 4294967295",
            ),
            (
                "be=sixteen-letters-*",
                "no thread's name fits `sixteen-letters-*` in `be=sixteen-letters-*`: \
                 the kernel keeps 15 bytes of a name",
            ),
        ] {
            assert_eq!(rule(text), Err(expected.into()));
        }
    }
}
