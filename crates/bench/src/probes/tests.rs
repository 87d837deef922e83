//! The programs on small counts, and the bench without a compiler; no time is compared.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::builds::write_sources;
use super::options::each_first;
use super::sources::{CLOCK, KERNELS, MAIN, RECORDER, TURNS};
use super::variant::Variant;
use super::*;
use crate::suite::{Outcome, Part as _, Suite};
use heddle_metrics::{Results, Row, Run};

fn options(compilers: Vec<Compiler>) -> ProbesOptions {
    ProbesOptions::new(compilers, 0, "/bin/false".into(), true)
}

/// A compiler without the pass, whose programs serve the tests.
fn plain() -> Option<Compiler> {
    let found = Command::new("cc").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no C compiler `cc`");
    }
    found.then(|| Compiler { name: "cc".into(), path: "cc".into(), version: "1".into() })
}

fn output(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{} {args:?}: {output:?}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_sources_compile_without_warnings() {
    let Some(compiler) = plain() else { return };
    let folder = tempfile::tempdir().unwrap();
    write_sources(folder.path()).unwrap();
    let kernels = KERNELS.iter().chain([&CLOCK]).map(|kernel| kernel.name);
    for name in kernels.chain([MAIN.0, RECORDER.0, TURNS.0]) {
        let mut command = compiler.command("/bin/false".as_ref(), Variant::None);
        command.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).current_dir(&folder);
        command.arg(format!("{name}.c"));
        compiler::compile(command, name).unwrap();
    }
}

#[test]
fn a_kernel_prints_its_times_and_its_checksum() {
    let Some(compiler) = plain() else { return };
    let options = options(Vec::new());
    let fib = KERNELS.iter().find(|kernel| kernel.name == "fib").unwrap();
    let program = options.builds.timed(&options.program, &compiler, fib, Variant::None).unwrap();
    let runs = output::kernel_runs(&output(&program, &["2"])).unwrap();
    assert_eq!(runs.checksum.len(), 16);
    let error = options.builds.timed(&options.program, &compiler, fib, Variant::NaiveFlag);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("does not compile fib.c (naive+flag)"), "{error}");
    assert!(error.contains(compiler::PACKAGES), "{error}");
}

/// A kernel that never looks at the clock is one gap in each run, not none.
#[test]
fn a_recording_covers_all_the_time_of_a_kernel() {
    let Some(compiler) = plain() else { return };
    let options = options(Vec::new());
    let program = options.builds.recorded(&options.program, &compiler, &CLOCK).unwrap();
    let clock = output::recorded(&output(&program, &["1"])).unwrap();
    let left_out = clock.lost * clock.times.count() as f64;
    assert!(clock.times.count() as f64 + left_out > 15_000.0, "{}", clock.times.count());
    let folder = tempfile::tempdir().unwrap();
    write_sources(folder.path()).unwrap();
    let mut command = compiler.command("/bin/false".as_ref(), Variant::None);
    command.args(["fib.c", "recorder.c", "-lm", "-o", "fib"]).current_dir(&folder);
    compiler::compile(command, "fib").unwrap();
    let fib = output(&folder.path().join("fib"), &["3"]);
    let counted: serde_json::Value = serde_json::from_str(&fib).unwrap();
    let count = output::recorded(&fib).unwrap().times.count();
    assert_eq!(count + counted["lost"].as_u64().unwrap(), 3, "{fib}");
}

#[test]
fn two_threads_work_and_watch_each_other() {
    let Some(compiler) = plain() else { return };
    let options = options(Vec::new());
    let program = options.builds.turns(&options.program, &compiler, Variant::None).unwrap();
    let said = "  preemptions  4\n";
    let worked = output::worked(&output(&program, &["work", "1000", "2"]), said).unwrap();
    assert_eq!(worked.preemptions, 2.0);
    output::recorded(&output(&program, &["watch", "20"])).unwrap();
    for (args, says) in [
        (vec!["work"], "usage: turns"),
        (vec!["work", "x", "1"], "STEPS: `x` is not a whole number from 1"),
        (vec!["watch", "19"], "MILLISECONDS: `19` is not a whole number from 20"),
    ] {
        let output = Command::new(&program).args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
    }
}

/// Invariant I1.
#[test]
fn variants_differ_in_the_options_of_the_pass_only() {
    let compiler =
        Compiler { name: "clang-9".into(), path: "/c/clang-9".into(), version: "9".into() };
    let words = |variant| {
        let command = compiler.command("/h".as_ref(), variant);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(words(Variant::None), "/c/clang-9 -O2");
    assert_eq!(words(Variant::NaiveFlag), "/h cc --heddle-placement=naive --heddle-check=flag -O2");
    for variant in Variant::PROBED {
        let command = compiler.command("/h".as_ref(), variant);
        let set = |name: &str| command.get_envs().find(|(key, _)| *key == name).map(|(_, v)| v);
        assert_eq!(set("HEDDLE_CLANG"), Some(Some("/c/clang-9".as_ref())));
        assert_eq!(set("HEDDLE_PROBES"), Some(None), "the user's options do not count");
    }
}

/// Invariant I2.
#[test]
fn each_round_starts_with_another_variant() {
    let first = |round| each_first(&Variant::ALL, round).next().unwrap().name();
    assert_eq!([0, 1, 5].map(first), ["none", "bounded+clock", "none"]);
    assert_eq!(each_first(&Variant::ALL, 3).count(), Variant::ALL.len());
    assert_eq!(each_first::<u8>(&[], 3).count(), 0);
}

#[test]
fn without_a_compiler_all_parts_say_what_to_install() {
    let mut without = options(Vec::new());
    without.refused = vec![("clang".into(), "no headers of LLVM 14 (llvm-14-dev)".into())];
    for part in [Part::Kernels, Part::Gaps, Part::Preempt] {
        let why = without.obstacle(part).unwrap();
        assert!(why.contains("llvm-14-dev") && why.contains("apt-get install clang"), "{why}");
    }
    assert!(options(Vec::new()).obstacle(Part::Gaps).unwrap().starts_with("no clang"));
    let compiler = Compiler { name: "c".into(), path: PathBuf::from("/c"), version: "9".into() };
    let mut with = options(vec![compiler]);
    with.refused = without.refused;
    assert_eq!(with.obstacle(Part::Kernels), None);
    assert!(with.lacks(Part::Kernels).unwrap().starts_with("without clang: no headers"));
}

/// `/bin/false` refuses everything, without a reason.
#[test]
fn what_heddle_run_refuses_is_said_before_it_is_measured() {
    let Some(compiler) = plain() else { return };
    let why = options(vec![compiler]).obstacle(Part::Preempt).unwrap();
    assert!(why.contains("gives no reason"), "{why}");
}

#[test]
fn steps_are_those_of_all_rounds() {
    let compiler = Compiler { name: "c".into(), path: PathBuf::from("/c"), version: "9".into() };
    let mut options = options(vec![compiler.clone(), compiler]);
    options.rounds = 3;
    options.parts = vec![Part::Kernels];
    assert_eq!(options.steps(), 3 * 2 * 10);
    options.parts = vec![Part::Programs];
    assert_eq!(options.steps(), 0);
    options.parts = vec![Part::Gaps];
    assert_eq!(options.steps(), 3 * 2 * 11);
    options.parts = vec![Part::Preempt];
    assert_eq!(options.steps(), 3 * (1 + 4 + 6 + 3));
}

#[test]
fn the_report_has_figures_tables_and_conditions() {
    let row = |system: &str, case: &str, metric: &str, unit: &str, value| {
        Row::from_runs(system, case, metric, unit, &[Run::ok(value)])
    };
    let rows = vec![
        row("c/bounded+clock", "fib", "slowdown", "%", 2.0),
        row("bounded+clock", "zstd", "slowdown", "%", 1.0),
        row("naive+flag", "zstd", "text_growth", "%", 9.0),
        row("c", "fib", "gap_p99.9", "ns", 2000.0),
        row("probe", "quantum 5us", "throughput_lost", "%", 3.0),
        row("probe", "quantum 10us", "late_p99", "ns", 900.0),
    ];
    let compiler = Compiler { name: "c".into(), path: PathBuf::from("/c"), version: "9".into() };
    let options = options(vec![compiler]);
    let tables = |&part: &Part| report::tables(part, &options.compilers, &rows);
    let tables: Vec<_> = Part::ALL.iter().flat_map(tables).collect();
    assert_eq!(tables.len(), 6);
    let outcome = Outcome { rows, tables, ..Outcome::default() };
    let html = options.report(&outcome, &Results::here(outcome.rows.clone())).to_html();
    for text in [
        "Slowdown of kernels without preemption",
        "Slowdown of programs without preemption",
        "Growth of their machine code",
        "p99.9 of the time between two looks",
        "Throughput lost by preemption",
        "p99 of the lateness",
        "Lateness of turns, quantum 10us",
        "a loop that only looks",
        "Concord",
        "--quick",
    ] {
        assert!(html.contains(text), "{text}");
    }
}
