//! Turns a scenario, or a service, into its outcome.

use crate::engine::{Broken, Engine, Watch};
use crate::replay::{Replay, Service, ServiceState};
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

/// Replays a service.
///
/// Deterministic: equal services give equal outcomes. Ends with the last answer; or, if requests starve, once the
/// last arrival is past by four times the span of all arrivals plus all that requests need in sum.
///
/// # Errors
/// [`SimError`] if the service contradicts itself, the policy does not exist, or the policy has one queue for all CPUs
/// and a thread may not run on all of them.
pub fn replay(service: &mut Service<'_>) -> Result<Replay, SimError> {
    run_service(service, None)
}

/// Replays a service and reports every step of its threads to `watch`. Tasks are the workers, then the other threads.
///
/// # Errors
/// As [`replay`].
pub fn replay_watched(
    service: &mut Service<'_>,
    watch: &mut dyn Watch,
) -> Result<Replay, SimError> {
    run_service(service, Some(watch))
}

fn run_service(
    service: &mut Service<'_>,
    watch: Option<&mut dyn Watch>,
) -> Result<Replay, SimError> {
    // The engine's machine, on which scheduling itself costs nothing. Its mix and its arrivals are not used.
    let (seed, mix) = (service.seed, "1us".parse().expect("a mix"));
    let scenario = Scenario { seed, ..Scenario::ideal(&service.policy, service.cpus, mix, 0.5) };
    let state = ServiceState::new(service)?;
    let watch = watch.map(|watch| &mut *watch as &mut dyn Watch);
    with_policy(&scenario.policy, RunService { scenario: &scenario, state, watch })?
}

struct RunService<'s> {
    scenario: &'s Scenario,
    state: ServiceState<'s>,
    watch: Option<&'s mut dyn Watch>,
}

impl Visitor for RunService<'_> {
    type Out = Result<Replay, SimError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        let RunService { scenario, state, watch } = self;
        guard(|| Engine::new(scenario, policy, watch, None)?.replay(state))
    }
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
        guard(|| Engine::new(scenario, policy, watch, steering)?.run())
    }
}

/// Turns a broken rule, which unwinds out of `run`, into an error. Nothing of the engine remains visible after it.
pub(crate) fn guard<T>(run: impl FnOnce() -> Result<T, SimError>) -> Result<T, SimError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| match panic.downcast() {
        Ok(broken) => {
            let Broken { policy, rule } = *broken;
            Err(SimError::Broke { policy, rule })
        }
        Err(panic) => resume_unwind(panic),
    })
}
