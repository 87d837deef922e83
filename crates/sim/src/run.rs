//! Turns a scenario into its outcome.

use crate::engine::{Broken, Engine, Watch};
use crate::{Outcome, Scenario, SimError};
use heddle_core::{Policy, SteeringPolicy};
use heddle_policies::{Visitor, with_policy};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs a scenario.
///
/// Deterministic: equal scenarios give equal outcomes. Memory grows with the tasks in the system, not
/// with the length of the run.
///
/// # Errors
/// [`SimError`] if the scenario cannot be run: a policy that does not exist, a trace that cannot be
/// read, numbers that contradict each other. A run without a steady state is an outcome
/// ([`Outcome::unstable`]), not an error.
pub fn run(scenario: &Scenario) -> Result<Outcome, SimError> {
    with_policy(&scenario.policy, Run { scenario, watch: None, steering: None })?
}

/// Runs a scenario, reports every step to `watch`, and returns it.
///
/// # Errors
/// As [`run`].
pub fn run_watched<W: Watch>(scenario: &Scenario, mut watch: W) -> Result<(Outcome, W), SimError> {
    let outcome =
        with_policy(&scenario.policy, Run { scenario, watch: Some(&mut watch), steering: None })??;
    Ok((outcome, watch))
}

/// Runs a scenario under a policy that need not be in the registry; ignores the scenario's own policy.
///
/// # Errors
/// As [`run`].
pub fn run_policy<P: Policy>(scenario: &Scenario, policy: P) -> Result<Outcome, SimError> {
    Run { scenario, watch: None, steering: None }.visit(policy)
}

/// Runs a scenario in which `steering`, instead of the scenario's own steering, binds every request to
/// a CPU when it arrives. Dropped requests are counted ([`Counts::dropped`](crate::Counts)) and not
/// measured.
///
/// The scenario's policy still decides what each CPU does next. Under one that neither steals nor has a
/// central queue (`best-of-two`), each CPU serves its own queue in order: executors with a socket each.
///
/// # Errors
/// As [`run`].
pub fn run_steered(
    scenario: &Scenario,
    steering: &mut dyn SteeringPolicy,
) -> Result<Outcome, SimError> {
    let policy = &scenario.policy;
    with_policy(policy, Run { scenario, watch: None, steering: Some(steering) })?
}

struct Run<'s> {
    scenario: &'s Scenario,
    watch: Option<&'s mut dyn Watch>,
    steering: Option<&'s mut dyn SteeringPolicy>,
}

impl Visitor for Run<'_> {
    type Out = Result<Outcome, SimError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        self.scenario.check()?;
        let Run { scenario, watch, steering } = self;
        let run = || Engine::new(scenario, policy, watch, steering)?.run();
        // After a broken rule, nothing of the engine remains visible.
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| match panic.downcast() {
            Ok(broken) => {
                let Broken { policy, rule } = *broken;
                Err(SimError::Broke { policy, rule })
            }
            Err(panic) => resume_unwind(panic),
        })
    }
}
