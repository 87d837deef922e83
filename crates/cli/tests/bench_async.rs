//! `heddle bench async` as a process: every part once and briefly. Figures of such short runs mean nothing, so
//! none is checked.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["bench", "async"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the rows of the parts. On a busy machine a run may be invalid (exit code 3); a failed part says so on
/// standard error.
fn rows(words: &[&str]) -> Vec<Value> {
    let output = bench(&[words, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    results["rows"].as_array().unwrap().clone()
}

/// On a busy machine a run may measure nothing, and says so.
#[track_caller]
fn has(rows: &[Value], system: &str, case: &str, metric: &str) {
    let same =
        |row: &&Value| row["system"] == system && row["case"] == case && row["metric"] == metric;
    let row = rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"));
    let note = row["note"].as_str().unwrap_or_default();
    let is_empty = note.contains("no request was measured");
    assert!(is_empty || row["value"].as_f64().unwrap() > 0.0, "{row}");
}

#[test]
fn every_system_has_a_row_for_each_operation() {
    let rows = rows(&["--only", "micro", "--rounds", "1"]);
    for case in ["spawn_await", "spawn_batch", "yield", "wake"] {
        for system in ["heddle-work-stealing", "heddle-two-queue", "heddle-threads"] {
            has(&rows, system, case, "cpu_ns_per_op");
        }
        for system in ["tokio", "tokio-current", "smol"] {
            has(&rows, system, case, "cpu_ns_per_op");
        }
    }
}

#[test]
fn idle_tasks_take_memory() {
    let rows = rows(&["--only", "memory", "--quick"]);
    for system in ["heddle-work-stealing", "heddle-threads", "tokio", "smol"] {
        has(&rows, system, "idle-2000", "bytes_per_task");
    }
    has(&rows, "heddle-work-stealing", "idle-10000", "memory");
}

#[test]
fn requests_have_response_times_gains_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("async.html");
    let words = ["--only", "1ms,blocking,saturation", "--quick", "--loads", "20"];
    let rows = rows(&[&words[..], &["--report", report.to_str().unwrap()]].concat());
    for system in ["heddle-two-queue", "heddle-fifo", "tokio", "tokio-8"] {
        for metric in ["p50", "p99", "p99.9", "cpu_per_request"] {
            has(&rows, system, "1ms-short", metric);
            has(&rows, system, "blocking-short", metric);
        }
        has(&rows, system, "saturation-short", "throughput");
    }
    has(&rows, "heddle-two-queue", "1ms-short", "p99_gain_over_tokio_8");
    has(&rows, "heddle-two-queue", "blocking-short", "p50_of_tokio");
    has(&rows, "heddle-two-queue", "saturation-short", "throughput_of_tokio");
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.contains("Throughput of requests of 5 us"), "{html}");
}

#[test]
fn wrong_options_are_wrong_usage_and_the_known_ones_are_named() {
    for (words, says) in [
        (["--only", "macro"], "micro, memory"),
        (["--systems", "rayon"], "tokio-current, smol"),
        (["--loads", "150"], "1 to 100"),
        (["--child", "{}"], "not a trial"),
        (["--report", "/no/such/folder/report.html"], "cannot write /no/such/folder/report.html"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{words:?}: {output:?}");
    }
}
