//! The programs on small counts, and targets of invented measurements; no time is compared.

use std::process::Command;

use super::programs::{Program, compile};
use super::*;
use crate::suite::{Outcome, Suite, Target};
use heddle_metrics::{Results, Row, Run};

fn row(system: &System, case: &str, metric: &str, unit: &str, value: f64) -> Row {
    Row::from_runs(&system.to_string(), case, metric, unit, &[Run::ok(value)])
}

fn heddle() -> System {
    System::Heddle(POLICY.into())
}

fn all() -> Vec<System> {
    System::of(&Kind::ALL, &[POLICY.into()])
}

fn options(systems: &[System]) -> PosixOptions {
    PosixOptions::new(systems, &heddle_sys::thread::affinity().unwrap(), "/bin/false".into(), true)
}

#[track_caller]
fn verdict(targets: &[Target], part: &str) -> bool {
    let target = targets.iter().find(|target| target.what.contains(part));
    target.unwrap_or_else(|| panic!("no {part}: {targets:?}")).reached
}

/// Returns what a program prints.
fn output(folder: &std::path::Path, program: Program, args: &[&str]) -> String {
    let output = Command::new(folder.join(program.name())).args(args).output().unwrap();
    assert!(output.status.success(), "{program:?} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_programs_compile_without_warnings_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: no C compiler `cc`");
        return;
    }
    for program in Program::ALL {
        compile(program, folder, &["-Wall", "-Wextra", "-Werror"]).unwrap();
    }
    let figures = |program, args: &[&str], wanted: &[&str]| {
        let printed = output(folder, program, args);
        let values: std::collections::BTreeMap<String, f64> =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        for name in wanted {
            assert!(values[*name] >= 0.0, "{program:?} {args:?}: {printed}");
        }
    };
    for (op, _) in micro::OPS {
        figures(Program::Micro, &[op, "0"], &["cpu_ns_per_op", "ops"]);
    }
    let wakeups = ["wakeup_p50_ns", "wakeup_p99_ns", "wakeup_p999_ns"];
    let requests = ["request_p50_ns", "request_p99_ns", "requests_per_s"];
    figures(Program::Schbench, &["3", "20", "1"], &[wakeups, requests].concat());
    figures(Program::Compute, &["3", "20"], &["jobs_per_s"]);
    figures(Program::First, &["20"], &[&wakeups[..], &["steps_per_s"]].concat());
    figures(Program::Server, &["--calibrate"], &["ns_per_loop"]);
    assert_eq!(output(folder, Program::Batch, &["2"]), "", "it was asked for nothing");
}

#[test]
fn the_programs_refuse_wrong_arguments() {
    let programs = programs::Programs::default();
    for (program, args, says) in [
        (Program::Micro, vec!["fly", "0"], "no operation `fly`"),
        (Program::Micro, vec!["yield", "x"], "`x` is not a whole number from 0"),
        (Program::Schbench, vec!["0", "1", "1"], "WORKERS: `0` is not a whole number from 1"),
        (Program::Compute, vec![], "usage: compute"),
        (Program::First, vec!["1"], "MILLISECONDS: `1` is not a whole number from 2"),
        (Program::Server, vec!["1"], "usage: server"),
        (Program::Batch, vec!["300"], "THREADS: at most 256"),
    ] {
        let path = match programs.path(program) {
            Ok(path) => path,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let output = Command::new(path).args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{program:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
    }
}

#[test]
fn systems_are_read_as_they_are_written_and_each_policy_is_one() {
    for kind in Kind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert!("linux".parse::<Kind>().unwrap_err().contains("kernel, kernel-nice, heddle"));
    let policies = ["fifo".to_owned(), POLICY.to_owned(), "fifo".to_owned()];
    let systems = System::of(&[Kind::Heddle, Kind::Kernel], &policies);
    let names: Vec<String> = systems.iter().map(System::to_string).collect();
    assert_eq!(names, ["kernel", "heddle/fifo", "heddle/two-queue:quantum=100us"]);
    assert_eq!(System::chief(&systems), Some(&systems[2]));
    assert_eq!(System::chief(&systems[..2]), Some(&systems[1]));
    assert_eq!(System::chief(&systems[..1]), None);
}

/// Invariant I2.
#[test]
fn each_round_starts_with_another_system() {
    let systems = all();
    let first = |round| PosixOptions::turns(&systems, round).next().unwrap().to_string();
    assert_eq!([0, 1, 2, 3].map(first).concat(), format!("kernelkernel-nice{}kernel", heddle()));
    assert_eq!(PosixOptions::turns(&systems, 2).count(), 3);
    assert_eq!(PosixOptions::turns(&[], 2).count(), 0);
}

/// Invariants I1 and I3.
#[test]
fn the_same_program_runs_plain_and_under_heddle_run() {
    let of = |system: &System| {
        let command = launch::command("/h".as_ref(), system, "/p".as_ref(), &["--nice".to_owned()]);
        assert!(command.get_envs().any(|(name, value)| name == "LD_PRELOAD" && value.is_none()));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(&System::Kernel), "/p --nice");
    assert_eq!(of(&System::KernelNice), "/p --nice");
    assert_eq!(of(&heddle()), "/h run --policy two-queue:quantum=100us -- /p --nice");
}

#[test]
fn operations_are_held_against_bounds_and_the_kernels_costs() {
    let rows = [
        row(&heddle(), "create_join", "cpu_ns_per_op", "ns", 450.0),
        row(&heddle(), "yield", "cpu_ns_per_op", "ns", 41.0),
        row(&System::Kernel, "read_write", "cpu_ns_per_op", "ns", 1000.0),
        row(&heddle(), "read_write", "over_kernel_ns", "ns", 29.0),
        row(&heddle(), "recv_blocks", "of_kernel", "x", 1.1),
        row(&heddle(), "child", "over_kernel_ns", "ns", 9e5),
    ];
    let targets = micro::targets(&all(), &rows);
    assert_eq!(targets.len(), 5, "{targets:?}");
    assert!(verdict(&targets, "create_join") && !verdict(&targets, "yield"));
    assert!(verdict(&targets, "read_write") && !verdict(&targets, "recv_blocks"));
    assert!(verdict(&targets, "child"));
    assert!(micro::targets(&[System::Kernel], &rows).is_empty());
}

#[test]
fn programs_are_held_against_the_kernel() {
    let gain = |case: &str, value| row(&heddle(), case, "wakeup_p99_gain", "x", value);
    let kept = |case: &str, value| row(&heddle(), case, "requests_kept", "x", value);
    let rows = [
        gain("schbench-1x", 1.0),
        kept("schbench-1x", 0.9),
        gain("schbench-2x", 10.0),
        gain("schbench-4x", 9.0),
        kept("schbench-4x", 0.96),
        row(&heddle(), "compute", "jobs_kept", "x", 0.94),
        row(&heddle(), "server-get", "p99.9_gain", "x", 8.0),
    ];
    let targets = schbench::targets(&all(), &rows);
    assert_eq!(targets.len(), 4, "with as many workers as CPUs no gain is promised");
    assert!(!verdict(&targets, "schbench-1x") && verdict(&targets, "schbench-2x"));
    assert!(!verdict(&targets, "schbench-4x: the kernel's"));
    assert!(verdict(&targets, "schbench-4x: heddle"));
    assert!(!compute::target(&all(), &rows).unwrap().reached);
    assert!(server::target(&all(), &rows).unwrap().reached);
}

#[test]
fn mariadbs_selects_and_aggregates_are_held_against_the_kernel() {
    let rows = [
        row(&heddle(), "mariadb-select", "p99.9_gain", "x", 3.1),
        row(&heddle(), "mariadb-select", "p99.9_gain_over_nice", "x", 1.9),
        row(&heddle(), "mariadb-aggregate", "aggregates_kept", "x", 0.96),
    ];
    let targets = mariadb::targets(&all(), &rows);
    assert_eq!(targets.len(), 3, "{targets:?}");
    assert!(verdict(&targets, "of selects over heddle"));
    assert!(!verdict(&targets, "at nice 19"));
    assert!(verdict(&targets, "aggregates per second"));
    assert!(
        mariadb::targets(&all(), &rows[..1]).len() == 1,
        "without nice there is no target for it"
    );
}

#[test]
fn memcached_is_held_against_the_kernel_by_its_threads() {
    let rows = [
        row(&heddle(), "memcached-t2", "gets_kept", "x", 0.94),
        row(&heddle(), "memcached-t2", "p99_of_kernel", "x", 1.05),
        row(&heddle(), "memcached-t8", "gets_kept", "x", 0.96),
        row(&heddle(), "memcached-t8", "p99_of_kernel", "x", 1.05),
    ];
    let targets = memcached::targets(&all(), &rows);
    assert_eq!(targets.len(), 4, "{targets:?}");
    assert!(!verdict(&targets, "t2: heddle/two-queue:quantum=100us's GETs"));
    assert!(verdict(&targets, "t2: heddle/two-queue:quantum=100us's p99"));
    assert!(verdict(&targets, "t8: heddle/two-queue:quantum=100us's GETs"));
    assert!(!verdict(&targets, "t8: heddle/two-queue:quantum=100us's p99"));
}

#[test]
fn tokio_is_held_against_the_kernel_where_it_has_more_workers_than_cpus() {
    let gain = |case: &str, value| row(&heddle(), case, "p99.9_gain", "x", value);
    let rows = [gain("tokio-w2-get", 1.0), gain("tokio-w8-get", 4.5)];
    let targets = tokio::targets(&all(), &rows);
    assert_eq!(targets.len(), 1, "{targets:?}");
    assert!(verdict(&targets, "tokio-w8"));
}

#[test]
fn a_server_that_is_not_built_says_how_to_build_it() {
    let why = options(&all()).obstacle(Part::Tokio).unwrap();
    assert!(why.contains("tokio_server is not built") && why.contains("--example"), "{why}");
}

/// Only parts with servers of the distribution have the longer quantum, and only servers have a class to be nice.
#[test]
fn parts_compare_the_systems_that_differ_in_them() {
    let mut options = options(&[System::Kernel, System::KernelNice]);
    options.of_servers = vec![System::Heddle(LONG_POLICY.into())];
    let names = |part| options.wanted(part).iter().map(System::to_string).collect::<Vec<_>>();
    assert_eq!(names(Part::Compute), ["kernel"]);
    assert_eq!(names(Part::Server), ["kernel", "kernel-nice"]);
    assert_eq!(names(Part::Mariadb), ["kernel", "kernel-nice", "heddle/two-queue:quantum=200us"]);
}

/// Invariant I1 of [`crate::suite`].
#[test]
fn what_heddle_run_refuses_is_left_out_and_the_reason_is_printed() {
    let options = options(&all());
    if options.programs.path(Program::Micro).is_err() {
        return eprintln!("skipped: no C compiler `cc`");
    }
    // `/bin/false` refuses everything, without a reason.
    let why = options.lacks(Part::Server).unwrap();
    assert!(why.contains("heddle/two-queue") && why.contains("gives no reason"), "{why}");
    assert_eq!(options.compared(Part::Server), [System::Kernel, System::KernelNice]);
    assert_eq!(options.compared(Part::Micro), [System::Kernel]);
    let alone = self::options(&[heddle()]);
    assert!(alone.obstacle(Part::Micro).unwrap().contains("gives no reason"));
    let nice = self::options(&[System::KernelNice]);
    assert!(nice.obstacle(Part::Compute).unwrap().contains("differs"));
    assert!(nice.obstacle(Part::Server).is_none());
}

#[test]
fn the_report_has_figures_and_conditions() {
    let options = options(&all());
    let rows = vec![
        row(&heddle(), "yield", "cpu_ns_per_op", "ns", 41.0),
        row(&System::Kernel, "schbench-2x", "wakeup_p99_ns", "ns", 3e6),
        row(&heddle(), "server-get", "p99.9", "ns", 1e6).with_load(2000.0),
        row(&heddle(), "mariadb-select", "p99.9", "ns", 1e6).with_load(9000.0),
        row(&heddle(), "mariadb-aggregate", "aggregates_per_s", "1/s", 30.0).with_load(9000.0),
    ];
    let outcome = Outcome { rows, ..Outcome::default() };
    let html = options.report(&outcome, &Results::here(outcome.rows.clone())).to_html();
    for text in [
        "CPU time of an operation",
        "p99 of wake-ups",
        "half its capacity",
        "beside aggregates",
        "what they pay",
        "alone",
        "--quick",
    ] {
        assert!(html.contains(text), "{text}");
    }
}
