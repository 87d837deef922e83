//! `heddle sim` as a process: from a name to a plot, wrong input, interrupts, files that are left alone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn sim(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("sim").args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().expect("the built command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn rows(output: &Output) -> Vec<serde_json::Value> {
    let results: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    results["rows"].as_array().unwrap().clone()
}

#[test]
fn the_help_leads_to_a_plot_in_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let help = text(&sim(folder.path(), &["--help"]).stdout);
    let command =
        help.lines().map(str::trim).find(|line| line.starts_with("heddle sim compare")).unwrap();
    let mut arguments: Vec<&str> = command.split_whitespace().skip(2).collect();
    arguments.extend(["--requests", "2000"]);
    let output = sim(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = fs::read_to_string(folder.path().join("shinjuku-compare.html")).unwrap();
    assert!(report.contains("<svg") && report.contains("p99.9 slowdown against load"));
    assert!(text(&output.stdout).contains("shinjuku-compare.html"));
    let again = sim(folder.path(), &arguments);
    assert_eq!(again.status.code(), Some(2), "nothing is replaced");
    assert!(text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
    arguments.push("--force");
    assert_eq!(sim(folder.path(), &arguments).status.code(), Some(0));
}

#[test]
fn a_run_by_flags_is_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "--policy",
        "two-queue",
        "--cpus",
        "8",
        "--mix",
        "aspen-rocksdb",
        "--load",
        "0.7",
        "--requests",
        "20000",
        "--json",
    ];
    let output = sim(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let all = rows(&output);
    for (case, metric) in
        [("get", "p99.9"), ("scan", "slowdown_p99"), ("all", "cpu_overhead"), ("all", "throughput")]
    {
        let row = all.iter().find(|row| row["case"] == case && row["metric"] == metric);
        let row = row.unwrap_or_else(|| panic!("{case} {metric}"));
        assert_eq!((&row["system"], &row["valid"]), (&"two-queue".into(), &true.into()));
    }
    assert_eq!(rows(&sim(folder.path(), &arguments)), all);
}

#[test]
fn a_printed_scenario_is_the_same_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let printed = sim(
        folder.path(),
        &["run", "colocation", "--load", "40%", "--requests", "5000", "--print-scenario"],
    );
    fs::write(folder.path().join("mine.toml"), &printed.stdout).unwrap();
    let mine = sim(folder.path(), &["run", "mine.toml", "--json"]);
    let other =
        sim(folder.path(), &["run", "colocation", "--load", "40%", "--requests", "5000", "--json"]);
    assert_eq!(mine.status.code(), Some(0), "{}", text(&mine.stderr));
    assert_eq!(rows(&mine), rows(&other));
    let schedule = ["run", "mine.toml", "--schedule", "steps.csv", "--steps", "50"];
    assert_eq!(sim(folder.path(), &schedule).status.code(), Some(0));
    let steps = fs::read_to_string(folder.path().join("steps.csv")).unwrap();
    assert!(steps.starts_with("ns,cpu,task,what\n") && steps.contains(",preempted\n"), "{steps}");
    assert_eq!(steps.lines().count(), 51);
}

#[test]
fn a_sweep_finds_loads_and_quanta() {
    let folder = tempfile::tempdir().unwrap();
    let output = sim(
        folder.path(),
        &[
            "sweep",
            "aspen",
            "--policies",
            "fifo,two-queue:quantum=50us,patience=64",
            "--quanta",
            "5us,50us",
            "--requests",
            "5000",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.contains("fifo") && table.contains("two-queue:quantum=50us,patience=64"),
        "{table}"
    );
    assert!(
        fs::read_to_string(folder.path().join("aspen-sweep.html"))
            .unwrap()
            .contains("Highest load by quantum")
    );
}

#[test]
fn a_run_without_a_steady_state_is_3() {
    let folder = tempfile::tempdir().unwrap();
    let output = sim(
        folder.path(),
        &[
            "run",
            "--policy",
            "fifo",
            "--cpus",
            "2",
            "--mix",
            "1us",
            "--load",
            "0.9",
            "--set",
            "costs.switch=1us",
            "--requests",
            "20000",
        ],
    );
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("NOT TO BE QUOTED: unstable"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn an_interrupt_is_130_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["sim", "compare", "shinjuku", "--requests", "1000000000"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // After the first line of progress it handles signals.
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    progress.read_line(&mut String::new()).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(130), String::new()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn wrong_input_is_2_and_names_the_place_and_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("slip.toml"), "policy = \"fifo\"\n[machine]\ncpsu = 4\n").unwrap();
    fs::write(folder.path().join("trace.csv"), "arrival,service\n5us,1us\n4us,1us\n").unwrap();
    let trace = ["run", "--policy", "fifo", "--cpus", "1", "--arrivals", "trace(trace.csv)"];
    for (arguments, right) in [
        (&["run"][..], "name one (heddle sim list)"),
        (&["run", "nothing"], "expected a TOML file, or one of shinjuku, aspen"),
        (
            &["run", "slip.toml"],
            "slip.toml:3:1: no key `machine.cpsu`, did you mean `machine.cpus`?",
        ),
        (&["run", "shinjuku", "--load", "1.5"], "--load: `workload.load`: load above capacity"),
        (
            &["run", "shinjuku", "--cpus", "0"],
            "--cpus: `machine.cpus`: 0 will not do; expected a whole number from 1 to 1024",
        ),
        (&["run", "shinjuku", "--cpus", "-4"], "--cpus: `machine.cpus`: -4 will not do"),
        (&["run", "shinjuku", "--policy", "fifi"], "did you mean `fifo`?"),
        (&["run", "shinjuku", "--mechanism", "uintrr"], "expected one of none, ideal"),
        (&["run", "shinjuku", "--mix", "50% 1us"], "these sum to 50 %"),
        (&["run", "shinjuku", "--set", "costs.switch"], "expected KEY=VALUE"),
        (&["run", "shinjuku", "--set", "costs.swich=1us"], "did you mean `costs.switch`?"),
        (&["run", "shinjuku", "--set", "costs.switch=-1us"], "expected a time of at least 0ns"),
        (&trace, "trace.csv:3: arrival 4us is before the one above it"),
        (&["run", "shinjuku", "--report", "no/such/folder.html"], "there is no such folder"),
        (&["compare", "shinjuku", "--loads", "half"], "expected a share above 0 and below 1"),
        (
            &["compare", "shinjuku", "--arrivals", "closed(tasks=4, think=1us)", "--json"],
            "cannot be varied",
        ),
        (&["sweep", "shinjuku", "--slo", "p99.9 < 50"], "there is no `<=`; expected [PART] p99"),
        (
            &["sweep", "shinjuku", "--slo", "scan p99 <= 50us"],
            "no part of the mix is called `scan`; expected none, or one of short, long",
        ),
        (
            &["paper", "no-such-figure"],
            "unknown published result no-such-figure; expected all, or skyloft-5",
        ),
        (&["sweep", "shinjuku", "--quanta", "5"], "a time is a number and a unit"),
    ] {
        let output = sim(folder.path(), arguments);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(right), "{arguments:?}: {complaint}");
    }
}

#[test]
fn published_results_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = sim(folder.path(), &["paper"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("skyloft-8b"), "{}", text(&output.stdout));
}

#[test]
fn the_lists_show_the_building_blocks_of_scenarios() {
    let folder = tempfile::tempdir().unwrap();
    let lists = text(&sim(folder.path(), &["list"]).stdout);
    for name in ["shinjuku", "rocksdb-50-50", "uintr-timer", "two-queue", "preemption.mechanism"] {
        assert!(lists.contains(name), "{name}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&sim(folder.path(), &["list", "mixes", "--json"]).stdout).unwrap();
    assert_eq!(json["mixes"][0]["name"], "shinjuku-99.5-0.5");
}
