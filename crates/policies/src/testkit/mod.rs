//! A kit that tests any policy: a model of a machine on which it runs under generated events.
//!
//! [`check`] generates sequences of events (spawn, pick, yield, block, wake, tick, preempt, steal,
//! exit, failed commits, stale hints) on one to six CPUs, runs the policy under each and compares its
//! decisions with a plain ledger of where every task is. It can find every [`Violation`]; the kit's own
//! tests check that each is found in a policy that was broken on purpose. The sequences are the same in
//! every run, and a failing one is shrunk to the shortest that fails; `PROPTEST_CASES` sets how many
//! there are.
//!
//! This is all that a test of a policy needs:
//!
//! ```
//! use heddle_policies::{testkit, RoundRobin};
//! testkit::check::<RoundRobin>("round-robin:quantum=5us");
//! testkit::check_params::<RoundRobin>();
//! ```
//!
//! [`PolicyHarness`] is for examples: it drives a policy one operation at a time.

mod dispatch;
mod endgame;
mod events;
mod harness;
mod ledger;
mod machine;
mod params;
#[cfg(test)]
mod tests;
mod violation;
mod world;

use events::Scenario;
use heddle_core::Policy;
use machine::Machine;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};

pub use harness::PolicyHarness;
pub use params::{check_params, check_params_of};
pub use violation::Violation;

/// What a policy promises beyond what every policy must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// A waiting task gets its turn even if others keep arriving. Policies that order by size or class
    /// (SRPT, LC before BE) do not promise it.
    pub fair: bool,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises { fair: true }
    }
}

/// Runs the policy that `text` describes through generated events.
///
/// # Panics
/// With the [`Violation`] and the shortest events that lead to it; or if `text` is refused.
pub fn check<P: Policy>(text: &str) {
    let make = || crate::build::<P>(text).unwrap_or_else(|e| panic!("{e}"));
    check_with(make, Promises::default());
}

/// The same for a policy made by `make`, under its promises.
///
/// # Panics
/// With the [`Violation`] and the shortest events that lead to it.
pub fn check_with<P: Policy>(make: impl Fn() -> P, promises: Promises) {
    if let Some((violation, scenario)) = find(&make, promises) {
        panic!("policy `{}`: {violation}\nafter {scenario:#?}", P::NAME);
    }
}

/// Returns the first violation that the kit finds in a policy, if any.
pub fn violation<P: Policy>(make: impl Fn() -> P, promises: Promises) -> Option<Violation> {
    find(&make, promises).map(|(violation, _)| violation)
}

fn find<P: Policy>(make: &impl Fn() -> P, promises: Promises) -> Option<(Violation, Scenario)> {
    let outcome = runner().run(&events::scenario(), |scenario| {
        let verdict = play(make, &scenario, promises);
        verdict.map_err(|violation| TestCaseError::fail(violation.to_string()))
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(_, scenario)) => {
            let violation = play(make, &scenario, promises).expect_err("the same run fails again");
            Some((violation, scenario))
        }
        Err(TestError::Abort(reason)) => panic!("the kit gave up: {reason}"),
    }
}

/// Runs one scenario; a panic of the policy is a violation like any other.
fn play<P: Policy>(
    make: &impl Fn() -> P,
    scenario: &Scenario,
    promises: Promises,
) -> Result<(), Violation> {
    let run = || Machine::new(make(), scenario.cpus).play(scenario, promises);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(match panic.downcast::<Violation>() {
            Ok(violation) => *violation,
            Err(panic) => Violation::Panic(message(&*panic)),
        })
    })
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Deterministic, so that a failure can be reproduced (core's I3), and without files on the side.
fn runner() -> TestRunner {
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}
