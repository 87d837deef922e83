//! From the source of a `pick_next` to code that agents can run; and what its author is told. The verifier's part needs
//! root and BPF; otherwise it is skipped, and says so.

use std::fs;
use std::path::Path;

use heddle_steer::policy::{PickNextError, Problem, pick_next, shipped_pick_nexts};

fn verifies() -> bool {
    let here = rustix::process::geteuid().is_root();
    if !here {
        eprintln!("skipped: verifying a pick_next needs root and BPF");
    }
    here
}

/// Returns what is wrong with this source.
fn problem(source: &str) -> Problem {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.bpf.c");
    fs::write(&file, format!("#include <heddle/pick_next.h>\n{source}")).unwrap();
    match pick_next(file.to_str().unwrap()) {
        Err(PickNextError::Refused(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

/// Returns the problem of a function with this body, and checks the line that it names.
fn problem_of_line(line: &str) -> Problem {
    let head = "static u32 pick_next(struct hd_offers *offers)\n{\n";
    let problem = problem(&format!("{head}\t{line}\n}}\n"));
    let place = problem.place.clone().unwrap_or_else(|| panic!("no place: {problem}"));
    assert_eq!((place.line, place.text.as_str()), (4, line), "{problem}");
    assert!(place.file.ends_with("mine.bpf.c"), "{problem}");
    problem
}

#[test]
fn the_shipped_ones_and_the_example_are_verified() {
    if !verifies() {
        return;
    }
    for name in shipped_pick_nexts() {
        let code = pick_next(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(code.shared.len(), 1, "{name} shares one map");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = root.join("examples/pick-next/warm-cache.bpf.c");
    let given = format!("{}:wait=500", example.display());
    let code = pick_next(&given).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(code.maps.len(), 1, "its parameter");
    let wrong = pick_next(&format!("{}:wait=x", example.display()));
    assert!(matches!(wrong, Err(PickNextError::Param(_))), "{wrong:?}");
}

#[test]
fn mistakes_are_named_with_their_line_and_in_the_words_of_a_pick_next() {
    let none = problem("static u32 other;\n").to_string();
    assert!(none.contains("no function `pick_next`"), "{none}");
    assert!(none.contains("struct hd_offers *offers") && !none.contains("schedule"), "{none}");
    let syntax = problem_of_line("return offers->cont;").to_string();
    assert!(syntax.contains("no member named 'cont'"), "{syntax}");
    let called = problem_of_line("return puts(\"mine\");").to_string();
    assert!(called.contains("is not defined") && !called.contains("policies"), "{called}");
}

#[test]
fn what_only_steering_policies_have_is_refused() {
    let uses = |what: &str| {
        let text =
            format!("static u32 pick_next(struct hd_offers *offers)\n{{\n\treturn {what};\n}}\n");
        problem(&text).to_string()
    };
    for (what, name) in [("hd_idle(0)", "hd_idle"), ("hd_executors()", "hd_control")] {
        let text = uses(what);
        assert!(text.contains(&format!("`{name}`, which is for steering policies")), "{text}");
    }
    let helper = uses("((u32 (*)(void))6)()");
    assert!(helper.contains("calls helper 6 of the kernel"), "{helper}");
}

#[test]
fn what_the_verifier_refuses_is_explained() {
    if !verifies() {
        return;
    }
    let unbounded = problem_of_line("return offers->offer[offers->count].tid;");
    assert!(unbounded.what.contains("outside of what a pointer points to"), "{unbounded}");
    assert!(unbounded.said.starts_with("the verifier: "), "{unbounded}");
    let endless = problem_of_line(
        "for (u32 i = 0;; i += offers->count) __sync_fetch_and_add(&offers->now, i);",
    );
    assert!(endless.to_string().contains("HD_OFFERS"), "{endless}");
}
