//! From a scenario to its outcome.

use crate::engine::{Engine, Watch};
use crate::{Outcome, Scenario, SimError};
use heddle_core::Policy;
use heddle_policies::{Visitor, with_policy};

/// Runs a scenario.
///
/// Deterministic: equal scenarios give equal outcomes. Memory grows with the tasks in the system, not with the length of the
/// run.
///
/// # Errors
/// [`SimError`] where the scenario cannot be run: a policy that does not exist, a trace that cannot be read, numbers that
/// contradict each other. A run without a steady state is an outcome ([`Outcome::unstable`]), not an error.
pub fn run(scenario: &Scenario) -> Result<Outcome, SimError> {
    with_policy(&scenario.policy, Run { scenario, watch: None })?
}

/// Runs a scenario and shows every step to `watch`, which comes back.
///
/// # Errors
/// As [`run`].
pub fn run_watched<W: Watch>(scenario: &Scenario, mut watch: W) -> Result<(Outcome, W), SimError> {
    let outcome = with_policy(&scenario.policy, Run { scenario, watch: Some(&mut watch) })??;
    Ok((outcome, watch))
}

/// Runs a scenario under a policy that need not be in the registry; the scenario's own is not looked at.
///
/// # Errors
/// As [`run`].
pub fn run_policy<P: Policy>(scenario: &Scenario, policy: P) -> Result<Outcome, SimError> {
    Run { scenario, watch: None }.visit(policy)
}

struct Run<'s> {
    scenario: &'s Scenario,
    watch: Option<&'s mut dyn Watch>,
}

impl Visitor for Run<'_> {
    type Out = Result<Outcome, SimError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        self.scenario.check()?;
        Engine::new(self.scenario, policy, self.watch)?.run()
    }
}
