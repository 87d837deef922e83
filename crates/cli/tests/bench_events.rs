//! `heddle bench events` as a process: every part once and briefly. Figures of such short runs mean nothing, so
//! none is checked.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");
const FEW: &str = "epoll-per-thread,epoll-shared,hybrid";

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "events"]).args(words).env_remove("HEDDLE_MEMCACHED");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the rows of a part. On a busy machine a run may be invalid (exit code 3); a failed part says so on
/// standard error.
fn rows(part: &str, words: &[&str]) -> Vec<Value> {
    let mut all = vec!["--quick", "--json", "--only", part];
    all.extend(words);
    let output = bench(&all);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rows = results["rows"].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "{part} failed: {said}");
    rows
}

#[track_caller]
fn has(rows: &[Value], system: &str, case: &str, metric: &str) {
    let same =
        |row: &&Value| row["system"] == system && row["case"] == case && row["metric"] == metric;
    let row = rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"));
    let value = row["value"].as_f64().unwrap();
    assert!(value.is_finite(), "{row}");
    // Differences and shares may have any value; times, rates and ratios are positive.
    if ["ns", "1/s", "x"].contains(&row["unit"].as_str().unwrap()) {
        assert!(value > 0.0, "{row}");
    }
}

#[test]
fn every_system_has_a_cost_per_event() {
    let rows = rows("overhead", &["--policy", "hybrid:affinity=queue"]);
    for system in ["epoll-shared", "epoll-exclusive", "queue-affinity", "cpu-affinity"] {
        has(&rows, system, "overhead", "cycles_per_event");
        has(&rows, system, "overhead", "cycles_over_per_thread");
    }
    has(&rows, "epoll-per-thread", "overhead", "cycles_per_event");
    has(&rows, "hybrid:affinity=queue", "overhead", "cycles_over_per_thread");
}

#[test]
fn pipes_have_a_case_for_each_number_of_threads() {
    let rows = rows(
        "pipes",
        &["--threads", "1,3", "--systems", "epoll-per-thread,epoll-exclusive,best-of-two"],
    );
    for case in ["pipes-1", "pipes-3"] {
        for system in ["epoll-per-thread", "epoll-exclusive", "best-of-two"] {
            has(&rows, system, case, "throughput");
            has(&rows, system, case, "throughput_ratio");
        }
    }
}

#[test]
fn the_mixes_have_tails_gains_and_loads() {
    for (part, words) in [
        ("zippydb", vec!["--scale", "2", "--loads", "20"]),
        ("gis", vec!["--loads", "20"]),
        ("dilated", vec!["--loads", "20"]),
    ] {
        let rows = rows(part, &[&words[..], &["--systems", FEW]].concat());
        for metric in ["light_p99_ns", "light_p999_ns", "p99_ns", "throughput"] {
            has(&rows, "epoll-per-thread", part, metric);
            has(&rows, "hybrid", part, metric);
        }
        has(&rows, "hybrid", part, "light_p99_gain");
        has(&rows, "hybrid", part, "light_p99_over_shared");
        has(&rows, "epoll-shared", part, "imbalance_percent");
        assert!(rows.iter().all(|row| row["load"].as_f64().unwrap() > 0.0));
    }
}

#[test]
fn uniform_requests_have_a_throughput() {
    let rows = rows("uniform", &["--systems", FEW, "--tcp"]);
    has(&rows, "epoll-shared", "uniform", "throughput");
    has(&rows, "hybrid", "uniform", "throughput_ratio");
}

#[test]
fn pages_have_tails_and_gains_on_every_system() {
    let rows = rows("web", &["--policy", "hybrid:penalty=2us"]);
    for system in ["epoll-shared", "epoll-exclusive", "cpu-affinity", "hybrid:penalty=2us"] {
        has(&rows, system, "web", "p99_ns");
        has(&rows, system, "web", "p99_gain");
        has(&rows, system, "web", "imbalance_percent");
    }
    has(&rows, "epoll-per-thread", "web", "p999_ns");
    has(&rows, "calibration", "web", "saturation");
}

/// What the distribution has stands in for a memcached on the queue: the patched one is tested where it is built.
#[test]
fn memcached_is_measured_and_without_one_on_the_queue_there_are_no_policies() {
    if !std::path::Path::new("/usr/bin/memcached").exists() {
        eprintln!("SKIPPED: no memcached here (apt-get install memcached)");
        return;
    }
    let rows = rows("memcached", &[]);
    has(&rows, "epoll-per-thread", "memcached", "p99_ns");
    has(&rows, "epoll-per-thread", "memcached", "throughput");
    assert!(rows.iter().all(|row| row["system"] != "hybrid"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("memcached");
    // It takes a policy, and ignores it.
    std::fs::write(&program, "#!/bin/sh\nshift 2\nexec /usr/bin/memcached \"$@\"\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "events", "--quick", "--json", "--only", "memcached"]);
    let output = command.env("HEDDLE_MEMCACHED", program).stdin(Stdio::null()).output().unwrap();
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = results["rows"].as_array().unwrap();
    for system in ["hybrid", "cpu-affinity"] {
        has(rows, system, "memcached", "p99_ns");
        has(rows, system, "memcached", "p99_gain");
    }
}

#[test]
fn a_high_priority_client_is_compared_with_itself() {
    let rows = rows("priority", &["--systems", FEW]);
    for system in ["hybrid high", "hybrid", "epoll-per-thread"] {
        has(&rows, system, "priority", "probe_over_idle");
    }
    has(&rows, "hybrid high", "priority", "others_over_without");
}

#[test]
fn predictions_are_shown_beside_measurements_in_tables_and_report() {
    let folder = tempfile::tempdir().unwrap();
    let (simulated, report) = (folder.path().join("sim.json"), folder.path().join("events.html"));
    let row = serde_json::json!({"system": "hybrid", "case": "overhead", "metric": "cycles_per_event", "value": 1.0,
        "unit": "cycles", "runs": 1, "min": 1.0, "max": 1.0, "valid": true});
    let machine = serde_json::to_value(heddle_metrics::Machine::detect()).unwrap();
    let results =
        serde_json::json!({"schema": 1, "command": ["heddle"], "machine": machine, "rows": [row]});
    std::fs::write(&simulated, results.to_string()).unwrap();
    let words = ["--quick", "--only", "overhead", "--predicted", simulated.to_str().unwrap()];
    let output = bench(&[&words[..], &["--report", report.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (text, html) =
        (String::from_utf8_lossy(&output.stdout), std::fs::read_to_string(report).unwrap());
    assert!(text.contains("sim:hybrid") && html.contains("sim:hybrid"), "{text}");
    assert!(text.contains("overhead: hybrid over one epoll per thread: target at most"), "{text}");
}

#[test]
fn wrong_options_are_wrong_usage_and_the_known_ones_are_named() {
    for (words, says) in [
        (["--only", "pipe"], "overhead, pipes"),
        (["--systems", "kqueue"], "epoll-per-thread"),
        (["--policy", "hybrid:penalty=soon"], "penalty"),
        (["--policy", "epoll-shared"], "not a policy"),
        (["--policy", "round-robin:quantum=5us"], "interrupted"),
        (["--threads", "0"], "1 to 64"),
        (["--scale", "0"], "0.01 to 100"),
        (["--loads", "150"], "1 to 100"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{words:?}: {output:?}");
    }
}
