//! Errors in the choice of a policy, with what would be right.

use crate::registry::{Info, find, names};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use heddle_core::ParamError;

/// A text that does not choose a policy. It owns its strings, so it can travel to where errors are
/// printed.
///
/// ```
/// use heddle_policies::{TwoQueue, build};
/// let error = build::<TwoQueue>("two-queue:quantom=1us").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "policy `two-queue`: no parameter `quantom`; there are: quantum, long, patience \
///      (for example two-queue:quantum=50us,long=2ms,patience=16)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// No policy has this name.
    Unknown {
        /// What was given.
        given: String,
        /// The most similar name, if one is close.
        nearest: Option<&'static str>,
    },
    /// The policy exists, but not with these parameters.
    Params {
        /// Its name.
        policy: String,
        /// What is wrong with them.
        problem: String,
        /// An example of how to write the policy, if the registry knows it.
        example: Option<String>,
    },
}

impl PolicyError {
    pub(crate) fn unknown(given: &str) -> PolicyError {
        PolicyError::Unknown { given: given.to_string(), nearest: crate::nearest(given, names()) }
    }

    pub(crate) fn params(policy: &str, problem: ParamError<'_>) -> PolicyError {
        let example = find(policy).map(Info::example);
        PolicyError::Params { policy: policy.to_string(), problem: problem.to_string(), example }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Unknown { given, nearest } => {
                write!(f, "no policy `{given}`")?;
                nearest.map_or(Ok(()), |name| write!(f, ", did you mean `{name}`?"))?;
                let all: Vec<_> = names().collect();
                write!(
                    f,
                    "{} there are: {}",
                    if nearest.is_some() { "" } else { ";" },
                    all.join(", ")
                )
            }
            PolicyError::Params { policy, problem, example } => {
                write!(f, "policy `{policy}`: {problem}")?;
                example.as_ref().map_or(Ok(()), |e| write!(f, " (for example {e})"))
            }
        }
    }
}

impl core::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        for (given, name) in [
            ("RoundRobin", Some("round-robin")),
            ("two_queue", Some("two-queue")),
            ("fifi", Some("fifo")),
            ("workstealing", Some("work-stealing")),
            ("lottery", None),
            ("", None),
        ] {
            assert_eq!(crate::nearest(given, names()), name, "{given}");
        }
    }

    #[test]
    fn an_unknown_name_lists_what_exists() {
        let all = crate::names().collect::<alloc::vec::Vec<_>>().join(", ");
        let text = |given| PolicyError::unknown(given).to_string();
        assert_eq!(text("lottery"), alloc::format!("no policy `lottery`; there are: {all}"));
        let slip = alloc::format!("no policy `ffo`, did you mean `fifo`? there are: {all}");
        assert_eq!(text("ffo"), slip);
    }
}
