//! The command as a script meets it: exit codes, standard output, broken pipes.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn heddle(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the built command starts")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn doctor_speaks_to_people_and_to_machines() {
    let output = heddle(&["doctor"]);
    assert_eq!(output.status.code(), Some(0));
    let lines = text(&output.stdout);
    assert!(lines.lines().count() > 15 && lines.contains("fsgsbase"), "{lines}");
    assert!(!lines.contains('\x1b'), "no colour into a pipe");

    let output = heddle(&["doctor", "--json"]);
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["checks"].as_array().unwrap().len(), lines.lines().count());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child =
        command(&["doctor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn a_full_disk_is_an_error_and_not_a_panic() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["doctor"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("heddle: No space left on device"));
}

#[test]
fn wrong_usage_is_2_and_names_what_exists() {
    assert_eq!(heddle(&[]).status.code(), Some(2));
    assert_eq!(heddle(&["docter"]).status.code(), Some(2));
    let output = heddle(&["bench", "threads", "--systems", "tokyo"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("boost-fiber"), "{}", text(&output.stderr));
    let output = heddle(&["bench", "threads", "--child", "tokio", "jump", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("spawn_join"));
}

#[test]
fn a_file_that_does_not_exist_is_named_once() {
    let output = heddle(&["compare", "/nonexistent/a.json", "/nonexistent/b.json"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("/nonexistent/a.json"), "{complaint}");
}

#[test]
fn a_bench_of_two_systems_makes_rows_a_report_and_a_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let report = report.to_str().unwrap();
    let output = heddle(&[
        "bench",
        "threads",
        "--quick",
        "--systems",
        "may,tokio",
        "--json",
        "--report",
        report,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let missing = row["system"] == "may" && row["case"] == "spawn_yield";
        assert_eq!(row["valid"], !missing, "{row}");
        assert_eq!((&row["metric"], &row["unit"]), (&"cpu_ns_per_op".into(), &"ns".into()));
    }
    let output = heddle(&["compare", "--check", report, report]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("within-spread"));
}

#[test]
fn doctor_looks_for_heddled_where_heddle_socket_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heddled.sock");
    let heddled = || {
        let output =
            command(&["doctor", "--json"]).env("HEDDLE_SOCKET", &path).output().expect("it runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let checks = report["checks"].as_array().expect("checks");
        checks.iter().find(|check| check["id"] == "heddled").expect("told").clone()
    };
    let check = heddled();
    let found = check["found"].as_str().expect("text");
    assert!(check["state"] == "no" && found.contains(path.to_str().unwrap()), "{check}");
    assert!(check["follows"].as_str().expect("text").contains("HEDDLE_SOCKET"), "{check}");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    assert_eq!(heddled()["state"], "yes");
}
