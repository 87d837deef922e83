//! memcached itself on one shared queue, built by `examples/memcached/run`. Its source comes by apt; the
//! tests are skipped with a message if it is not available.

mod common;

use common::libraries;
use heddle_test_support::workspace_root;
use std::process::Command;

/// Runs the script with `policy` and returns its output and status.
fn run(policy: &str) -> (String, Option<i32>) {
    let libraries = libraries();
    let mut script = Command::new(workspace_root().join("examples/memcached/run"));
    script.args(["--test", "-q", policy]).env("HEDDLE_LIBRARY", libraries);
    script.env("CARGO_TARGET_DIR", libraries.parent().expect("the target folder"));
    let output = script.output().expect("it runs");
    let both = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&both).into_owned(), output.status.code())
}

#[test]
fn memcached_answers_correctly_and_all_its_threads_handle_events_under_each_policy() {
    for policy in ["hybrid", "best-of-two", "hybrid:affinity=queue,retry=100us"] {
        match run(policy) {
            (said, Some(77)) => return eprintln!("SKIPPED: {said}"),
            (said, status) => assert_eq!(status, Some(0), "{policy}: {said}"),
        }
    }
}

#[test]
fn memcached_explains_an_invalid_policy() {
    match run("hybird") {
        (said, Some(77)) => eprintln!("SKIPPED: {said}"),
        (said, status) => {
            assert_eq!(status, Some(1), "{said}");
            assert!(said.contains("is the policy right?"), "{said}");
        }
    }
}
