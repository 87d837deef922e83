//! Errors in the choice of a policy, with what would be right.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

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
        /// The names that there are.
        names: Vec<&'static str>,
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

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Unknown { given, nearest, names } => {
                write!(f, "no policy `{given}`")?;
                nearest.map_or(Ok(()), |name| write!(f, ", did you mean `{name}`?"))?;
                write!(
                    f,
                    "{} there are: {}",
                    if nearest.is_some() { "" } else { ";" },
                    names.join(", ")
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
