//! Mistakes in policies and their explanations: a small policy each in `tests/policies`. Errors of the
//! compiler and of Heddle's check need no privilege; the kernel's need root, otherwise the tests skip and say
//! so.

use std::path::PathBuf;

use heddle_steer::hook::Hook;
use heddle_steer::policy::{Outcome, Problem, Report, Source, VerifyError, verify};

fn report(name: &str) -> Report {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies").join(name);
    verify(&Source::File(path), "", &Hook::ALL).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn problem(name: &str) -> Problem {
    let report = report(name);
    assert!(!report.is_good(), "{name}: {report}");
    report.problem.unwrap_or_else(|| panic!("{name} has no problem"))
}

/// Checks the report on `name`: the line, and some of the words.
fn says(name: &str, line: u32, words: &[&str]) {
    let problem = problem(name);
    let text = problem.to_string();
    let place = problem.place.map(|place| place.line);
    assert_eq!(place, (line > 0).then_some(line), "{name}: {text}");
    for word in words {
        assert!(text.contains(word), "{name} does not say `{word}`: {text}");
    }
    assert!(!text.contains("<stdin>") && !text.contains("In file included"), "{name}: {text}");
}

#[test]
fn compiler_errors_are_explained() {
    says("no-schedule.c", 0, &["no function `schedule`", "static u32 schedule(struct hd_in *in)"]);
    says("wrong-signature.c", 3, &["takes or returns something else", "static u32 schedule"]);
    says("c-library.c", 2, &["no such header", "without a C library", "string.h"]);
    says("undefined-function.c", 5, &["a function that is not defined", "strlen"]);
    says("float.c", 5, &["no float and no double", "whole numbers"]);
    says("division-by-zero.c", 5, &["divides by zero"]);
    says("big-stack.c", 9, &["512 bytes of stack", "HD_TABLE"]);
    says("uninitialised.c", 7, &["before anything was put into it"]);
    says("syntax-error.c", 5, &["expected ';'", "return 0", "^"]);
}

#[test]
fn check_errors_are_explained() {
    says("undefined-extern.c", 7, &["`elsewhere`, which is not defined"]);
    says("kernel-helper.c", 9, &["helper 113", "may not"]);
    says("ten-gigabytes.c", 0, &["64 MiB", "`big`"]);
    says("recursion.c", 0, &["call each other, without an end"]);
}

#[test]
fn kernel_errors_are_explained() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: the kernel verifies for root only");
        return;
    }
    says("unbounded-loop.c", 7, &["1,000,000 instructions", "constant bound", "the verifier:"]);
    says("no-null-check.c", 9, &["whether there is one", "if (!value)", "map_value_or_null"]);
    says("out-of-bounds.c", 11, &["outside of what a pointer points to", "bound the index"]);
    says("behind-window.c", 5, &["outside of what a pointer points to", "hd_load"]);
    says("too-long.c", 9, &["1,000,000 instructions"]);
    says("keeps-pointer.c", 10, &["where the kernel keeps something"]);
}

#[test]
fn a_good_policy_is_described() {
    let report = report("good.c");
    assert_eq!(report.problem, None, "{report}");
    assert_eq!(report.lines, Some(9));
    assert_eq!(report.helpers, ["map lookup"]);
    let map = &report.maps[0];
    assert_eq!(
        (map.name.as_str(), map.kind, map.entries, map.value_bytes),
        ("seen", "array", 64, 64)
    );
    assert_eq!(report.hooks.len(), 4);
    for hook in &report.hooks {
        match &hook.outcome {
            Outcome::Fits { verified, .. } => assert!(*verified > 0),
            Outcome::NotChecked { why } => eprintln!("not checked at {}: {why}", hook.hook),
            other => panic!("{}: {other:?}", hook.hook),
        }
    }
}

#[test]
fn policies_that_read_sockets_fit_only_hooks_with_sockets() {
    let report = verify(&Source::Shipped("jiq".into()), "", &Hook::ALL).expect("readable");
    for hook in &report.hooks {
        let refused =
            matches!(&hook.outcome, Outcome::DoesNotFit { why } if why.contains("sockets"));
        assert_eq!(refused, hook.hook != Hook::SocketSelect, "{report}");
    }
    assert!(report.is_good(), "{report}");
}

#[test]
fn compiled_files_are_recognised() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policy.o");
    std::fs::write(&file, b"\x7fELF and nothing else").expect("written");
    let report = verify(&Source::File(file.clone()), "", &[]).expect("readable");
    assert!(report.problem.is_some_and(|problem| problem.what.contains("not a compiled policy")));
    std::fs::write(&file, heddle_steer::policy::shipped("sita").expect("shipped"))
        .expect("written");
    let report = verify(&Source::File(file), "scan=9", &[]).expect("readable");
    assert_eq!(report.parameters.iter().find(|p| p.name == "scan").map(|p| p.value), Some(9));
    let missing = verify(&Source::File("nowhere.c".into()), "", &[]);
    assert!(matches!(missing, Err(VerifyError::Compile(_))));
    let wrong = verify(&Source::Shipped("sita".into()), "nonsense=1", &[]);
    assert!(matches!(wrong, Err(VerifyError::Param(_))));
}
