//! `heddle bench go` as a process: each part once and briefly, on a small dataset. Figures of such short runs
//! mean nothing, so none is checked. Visibly skipped if there is no Go or its modules are unavailable; a part
//! that breaks for another reason fails.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "go"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns why the programs cannot be built here, if so.
fn obstacle() -> Option<String> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../go/bench");
    let download = Command::new("go").args(["mod", "download"]).current_dir(sources).output();
    match download {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(format!("no Go: {error}")),
    }
}

/// Returns the rows of a part; prints why and returns `None` if it cannot run here. On a busy machine a run may
/// be invalid (exit code 3).
fn rows(part: &str, words: &[&str]) -> Option<Vec<Value>> {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: bench go, {part}: {why}");
        return None;
    }
    let all = [&["--quick", "--json", "--only", part], words].concat();
    let output = bench(&all);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rows = results["rows"].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "{part} failed: {said}");
    Some(rows)
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

fn badger(part: &str) {
    let systems = "stock,heddle-off,heddle-100us,aspen-100us";
    let Some(rows) = rows(part, &["--systems", systems, "--loads", "30"]) else { return };
    for system in systems.split(',') {
        for metric in ["short_p50_ns", "short_p99_ns", "short_p999_ns", "achieved"] {
            has(&rows, system, part, metric);
        }
        // Such a short run may have no long request; its row then says so.
        assert!(rows.iter().any(|row| row["system"] == system && row["metric"] == "long_p99_ns"));
    }
    for system in ["heddle-off", "heddle-100us", "aspen-100us"] {
        has(&rows, system, part, "short_p99_gain");
    }
    has(&rows, "heddle-100us", part, "short_p99_gain_over_aspen");
    has(&rows, "calibration", part, "scan_service_ns");
}

#[test]
fn badger_over_datagrams_has_tails_and_gains() {
    badger("badger-udp");
}

#[test]
fn badger_over_http_has_tails_and_gains() {
    badger("badger-http");
}

#[test]
fn computing_programs_have_a_cost_on_each_system() {
    let words = ["--cases", "sort,mutex", "--systems", "stock,heddle-100us-event,aspen-50us"];
    let Some(rows) = rows("cpu", &words) else { return };
    for case in ["sort", "mutex"] {
        has(&rows, "stock", case, "best_cpu_ns");
        for system in ["heddle-100us-event", "aspen-50us"] {
            has(&rows, system, case, "best_cpu_ns");
            has(&rows, system, case, "cost_percent");
        }
    }
    assert!(rows.iter().all(|row| row["case"] == "sort" || row["case"] == "mutex"));
}

#[test]
fn without_sources_the_parts_are_skipped_and_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(&["--quick", "--source", folder.path().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in ["badger-udp", "badger-http", "cpu"] {
        assert!(text.contains(&format!("Skipped: {part}")), "{text}");
    }
    assert!(text.contains("--source is the folder go/bench"), "{text}");
}

#[test]
fn without_a_toolchain_the_parts_are_skipped_and_say_what_to_install() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../go/bench");
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "go", "--quick", "--only", "cpu", "--source", sources]);
    let output = command.env("PATH", "/nonexistent").stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Skipped: cpu: no Go toolchain: install Go 1.25"), "{output:?}");
}

#[test]
fn wrong_options_are_wrong_usage_and_the_known_ones_are_named() {
    for (words, says) in [
        (["--only", "badger"], "badger-udp, badger-http, cpu"),
        (["--systems", "heddle"], "heddle-100us"),
        (["--systems", "aspen-100us-nap"], "-spin"),
        (["--loads", "0"], "1 to 150"),
        (["--cpus", "4096"], "may not be used"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{words:?}: {output:?}");
    }
}
