//! Why a simulation was not run.

use crate::replay::ServiceError;
use crate::scenario::ScenarioError;
use crate::workload::{FileError, OutOfRange};
use heddle_core::driver::Rule;
use heddle_policies::PolicyError;

/// Why a simulation did not run, or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The policy does not exist, or one of its parameters is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] FileError),
    /// A rate that no arrivals can have.
    #[error(transparent)]
    Rate(#[from] OutOfRange),
    /// The scenario cannot be read or contradicts itself.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A service contradicts itself.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The policy broke a rule that every hook enforces: a fault in the policy.
    #[error("policy `{policy}` {rule}; this is a fault in the policy")]
    Broke {
        /// The policy's name.
        policy: &'static str,
        /// The rule.
        rule: Rule,
    },
    /// The caller ended the run early.
    #[error("interrupted")]
    Interrupted,
}
