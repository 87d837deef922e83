//! kqueue's semantics, tested by C programs that include <sys/event.h>.

mod common;

use common::link;
use heddle_test_support::run;
use std::path::Path;
use std::process::Command;

/// Builds `tests/c/NAME.c` and runs each of its cases in its own process.
fn cases(name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join(name);
    link(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c")),
        &program,
    );
    let cases = run(&mut Command::new(&program));
    assert!(cases.lines().count() > 1, "{name}: {cases}");
    for case in cases.lines() {
        // A case that hangs is killed; none takes long.
        run(Command::new("timeout").args(["-k", "5", "120"]).arg(&program).arg(case));
    }
}

#[test]
fn flags_and_errors_are_those_of_the_manual() {
    cases("flags");
}

#[test]
fn descriptors_are_reported_accurately_and_forgotten_when_closed() {
    cases("descriptors");
}

#[test]
fn threads_share_a_queue_and_queues_end_in_any_way() {
    cases("threads");
}

#[test]
fn filters_and_closed_queues_are_as_freebsd_has_them() {
    cases("freebsd");
}

#[test]
fn an_edge_is_reported_once_however_many_threads_wait() {
    cases("edges");
}
