//! A policy of the user's own needs no other crate than `heddle`.

use heddle::RuntimeBuilder;
use heddle::policy::{build, names};

#[path = "../examples/own_policy.rs"]
mod own_policy;

#[test]
fn the_example_of_an_own_policy_runs() {
    own_policy::main().unwrap();
}

#[test]
fn the_registry_is_part_of_the_facade() {
    assert!(names().any(|name| name == "two-queue"));
    let policy = build::<heddle::policy::shipped::TwoQueue>("two-queue:quantum=100us").unwrap();
    let runtime = RuntimeBuilder::new().workers(1).build_with(policy).unwrap();
    assert_eq!((runtime.policy(), runtime.run(|| 1)), ("two-queue", 1));
}
