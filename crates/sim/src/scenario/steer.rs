//! The choice of the CPU where a request arrives, as text.

use crate::workload::call::{Call, Form};
use crate::workload::grammar::{GrammarError, Span};
use std::fmt;
use std::str::FromStr;

/// How the CPU of a new request is chosen.
///
/// Its text is `round-robin`, `random`, `hash(flows=64)`, `fewest(choices=2)` or `by-part`; printing
/// returns the same text.
///
/// ```
/// use heddle_sim::Steer;
/// assert_eq!("hash(flows=64)".parse(), Ok(Steer::Hash { flows: 64 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    /// One after the other.
    RoundRobin,
    /// Any, independently.
    Random,
    /// By the hash of its flow: what a network card does (RSS).
    Hash {
        /// How many flows, at least 1.
        flows: u32,
    },
    /// The CPU with the fewest tasks among `choices` distinct random ones; with as many as there are
    /// CPUs, this is join-the-shortest-queue.
    Fewest {
        /// How many, at least 1; more than there are CPUs means all of them.
        choices: u32,
    },
    /// By the part of the mix: each part has its own CPUs, in proportion to its work (SITA).
    ByPart,
}

const FORMS: &[Form] = &[
    Form { name: "round-robin", arguments: &[], places: 0, example: "round-robin" },
    Form { name: "random", arguments: &[], places: 0, example: "random" },
    Form { name: "hash", arguments: &["flows"], places: 1, example: "hash(flows=64)" },
    Form { name: "fewest", arguments: &["choices"], places: 1, example: "fewest(choices=2)" },
    Form { name: "by-part", arguments: &[], places: 0, example: "by-part" },
];

impl FromStr for Steer {
    type Err = GrammarError;

    /// # Errors
    /// [`GrammarError`], which says where the text is wrong and what was expected.
    fn from_str(text: &str) -> Result<Steer, GrammarError> {
        let call = Call::read(Span::new(text), FORMS)?;
        let count = |argument: &'static str| {
            let number = call.value(argument)?.text().parse().ok().filter(|&n: &u32| n > 0);
            number.ok_or_else(|| call.not(argument, "a whole number of at least 1"))
        };
        Ok(match call.form.name {
            "round-robin" => Steer::RoundRobin,
            "random" => Steer::Random,
            "hash" => Steer::Hash { flows: count("flows")? },
            "fewest" => Steer::Fewest { choices: count("choices")? },
            _ => Steer::ByPart,
        })
    }
}

impl fmt::Display for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Steer::RoundRobin => f.write_str("round-robin"),
            Steer::Random => f.write_str("random"),
            Steer::Hash { flows } => write!(f, "hash(flows={flows})"),
            Steer::Fewest { choices } => write!(f, "fewest(choices={choices})"),
            Steer::ByPart => f.write_str("by-part"),
        }
    }
}
