//! `heddle bench kv` and `heddle kv load` as processes: results, interrupts, and what is left behind.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use heddle_test_support::until;

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

/// A small but complete comparison. `marker` is the size of a value, by which the test recognises its own
/// servers among all processes.
fn bench_kv(marker: u32, rounds: &str, temp: &tempfile::TempDir) -> Command {
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "kv", "--system", "tokio", "--system", "threads", "--json"]);
    command.args(["--store", "memory", "--keys", "20000", "--scan", "100us", "--loads", "30"]);
    command.args(["--rounds", rounds, "--seconds", "0.2", "--value-size", &marker.to_string()]);
    command.env("TMPDIR", temp.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Counts servers started with this size of values.
fn servers(marker: u32) -> usize {
    let wanted = format!("--value-size\0{marker}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.filter(|line| line.contains("serve\0") && line.contains(&wanted)).count()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

fn rows(output: &Output) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let results: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{complaint}"));
    results["rows"].as_array().unwrap().clone()
}

#[test]
fn a_comparison_gives_rows_for_each_system_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let output = bench_kv(71, "1", &temp).output().unwrap();
    // On a busy machine the figures may be invalid (3); any other code is an error.
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    // The runner measured on one CPU, but the whole machine is described.
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["machine"]["cores"], std::thread::available_parallelism().unwrap().get());
    let rows = rows(&output);
    for system in ["tokio", "threads"] {
        for (case, metric) in
            [("get", "p99.9"), ("scan", "p99"), ("all", "throughput"), ("all", "cpu")]
        {
            let has = |row: &&serde_json::Value| {
                row["system"] == system && row["case"] == case && row["metric"] == metric
            };
            assert!(rows.iter().any(|row| has(&row)), "{system} {case} {metric}");
        }
    }
    assert_eq!(servers(71), 0);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupt_prints_partial_results_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let runner = bench_kv(72, "1000", &temp).spawn().unwrap();
    until("a server", || servers(72) > 0);
    signal(&runner, "-INT");
    let output = runner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    rows(&output);
    assert_eq!(servers(72), 0);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn a_server_ends_if_its_runner_is_killed() {
    let temp = tempfile::tempdir().unwrap();
    let mut runner = bench_kv(73, "1000", &temp).spawn().unwrap();
    until("a server", || servers(73) > 0);
    runner.kill().unwrap();
    runner.wait().unwrap();
    until("the end of the server", || servers(73) == 0);
}

#[test]
fn a_server_that_does_not_start_is_named_with_its_reason() {
    let temp = tempfile::tempdir().unwrap();
    let mut command = bench_kv(74, "1", &temp);
    command.args(["--system", "heddle no-such-policy"]);
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("heddle no-such-policy ended before it was ready"), "{complaint}");
    assert!(complaint.contains("heddle kv serve --system heddle"), "{complaint}");
    assert_eq!(servers(74), 0);
}

#[test]
fn wrong_usage_is_2_with_the_fix() {
    for (arguments, right) in [
        (&["kv", "load", "--rate", "10", "--target", "192.0.2.1:7380"][..], "--allow-remote"),
        (&["kv", "load", "--rate", "10", "--mix", "gets=1"], "get, scan, set"),
        (&["kv", "load", "--rate", "-1"], "above zero"),
        (&["bench", "kv", "--system", "rayon"], "heddle, tokio, threads"),
        (&["bench", "kv", "--loads", "half"], "such as 50"),
        (&["bench", "kv", "--cpus", "4000"], "may not be used"),
    ] {
        let output = Command::new(HEDDLE).args(arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(right), "{arguments:?}: {complaint}");
    }
}
