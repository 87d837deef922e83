//! `scripts/bench-scale`: which points are measured and which simulated, and that each row says so.

use heddle_metrics::{Results, Row, Run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bench_scale(cores_here: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/bench-scale");
    let mut command = Command::new(script);
    command.env("BENCH_SCALE_HERE", cores_here);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn points_beyond_the_machine_are_simulated() {
    let plan = bench_scale("4").arg("--plan").output().unwrap();
    assert!(plan.status.success());
    let plan = text(&plan);
    for line in [
        "threads 4 measured",
        "threads 8 simulated",
        // The load generator takes one core.
        "kv 2 measured",
        "kv 4 simulated",
        "events 4 measured",
        "events 16 simulated",
        "agents 1 measured",
    ] {
        assert!(plan.lines().any(|l| l == line), "{line}\n{plan}");
    }
}

/// Creates a program that answers every command with the same result.
fn stand_in(folder: &Path) -> PathBuf {
    let row =
        |system: &str, metric: &str| Row::from_runs(system, "yield", metric, "ns", &[Run::ok(7.5)]);
    let rows = vec![row("heddle", "cpu_ns_per_op"), row("two-queue", "p99")];
    fs::write(folder.join("result"), Results::here(rows).to_json()).unwrap();
    let program = folder.join("heddle");
    fs::write(&program, "#!/bin/sh\ncat \"$(dirname \"$0\")/result\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn each_row_says_whether_it_was_measured_and_the_result_names_the_processor() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("scale.json");
    let output = bench_scale("2")
        .args(["--parts", "threads", "--cores", "2,8", "--json"])
        .arg(&json)
        .env("HEDDLE", stand_in(folder.path()))
        .output()
        .unwrap();
    let table = text(&output);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let row = |words: &[&str]| {
        table.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(words))
    };
    assert!(
        row(&["threads", "2", "measured", "heddle", "yield", "cpu_ns_per_op", "7.5"]),
        "{table}"
    );
    assert!(row(&["threads", "8", "simulated", "two-queue", "yield", "p99", "7.5"]), "{table}");
    let result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert!(!result["processor"].as_str().unwrap().is_empty());
    assert_eq!(result["points"].as_array().unwrap().len(), 2);
}

#[test]
fn a_point_that_fails_is_named() {
    let output = bench_scale("2")
        .args(["--parts", "threads", "--cores", "1"])
        .env("HEDDLE", "/bin/false")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("failed"), "{}", text(&output));
}

#[test]
fn wrong_arguments_are_refused() {
    for wrong in [["--cores", "0"], ["--parts", "network"], ["--cores", "many"]] {
        let output = bench_scale("2").args(wrong).env("HEDDLE", "/bin/false").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
