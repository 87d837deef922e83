//! `heddle advise` on a running server: the answer, the check, and what is left behind if the check is killed.
//! Requires root, BPF and python3.

#[path = "steer/room.rs"]
#[allow(dead_code, reason = "shared with the tests of steering")]
mod room;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use heddle_test_support::{temp_dir, until};
use room::{Room, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs `heddle` without a room: nothing that it does needs a privilege.
fn heddle(arguments: &[&str], home: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command
        .args(arguments)
        .env("XDG_STATE_HOME", home)
        .stdin(Stdio::null())
        .output()
        .expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that is asked all the time.
fn with_load<R>(room: &Room, server: &Server, body: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                room.ask(server, 50);
            }
        });
        let result = body();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn attached(room: &Room) -> usize {
    room.json(&["steer", "ls", "--json"])["attachments"].as_array().expect("a list").len()
}

/// An advice to steer the server by turns, as `heddle advise` keeps it.
fn advice(server: &Server, file: &Path) {
    let change =
        json!({"steer": {"policy": "round-robin", "protocol": "udp", "port": server.at.port()}});
    let ratio = json!({"value": 1.5, "low": 1.2, "high": 2.0});
    let option = json!({
        "change": change, "effort": "none", "apply": "", "undo": "", "ratio": ratio, "after": 1,
        "rows": [], "harm": null,
    });
    let advice = json!({
        "service": "python3", "port": server.at.port(), "edge": null, "class": "all", "quantile": 0.5, "observed": 1,
        "limit": null, "self_check": null, "evidence": {}, "options": [option], "declined": null, "notes": [],
    });
    let target = json!({"processes": [], "ports": [server.at.port()]});
    fs::write(file, json!({"target": target, "advice": advice}).to_string()).expect("written");
}

/// A room with a server, and a folder with the file of an advice to steer it.
fn advised() -> Option<(Room, Server, TempDir, PathBuf)> {
    let room = Room::new()?;
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let folder = temp_dir();
    let file = folder.path().join("advice.json");
    advice(&server, &file);
    Some((room, server, folder, file))
}

/// Starts a check, and waits until its change is in effect.
fn checking(room: &Room, file: &Path) -> Child {
    let file = file.to_str().expect("text");
    let arguments = ["advise", "check", "--advice", file, "--pairs", "500", "--window", "1s"];
    let mut command = room.command(env!("CARGO_BIN_EXE_heddle"), &arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("the change is applied", || attached(room) == 1);
    child
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it lives");
}

#[test]
fn a_recording_gives_the_same_answer_as_watching() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let folder = temp_dir();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let (recording, model) = (path("recording.json"), path("model.json"));
    let port = server.port();
    let live = with_load(&room, &server, || {
        let arguments = [
            "advise", "--port", &port, "--for", "3s", "--save", &recording, "--model", &model,
            "--json",
        ];
        room.heddle(&arguments)
    });
    // Whether it advises depends on how busy this machine is; both answers are answers.
    assert!(matches!(live.status.code(), Some(0 | 3)), "{}", text(&live.stderr));
    let live: Value = serde_json::from_slice(&live.stdout).expect("one object");
    assert_eq!(
        (live["port"].as_u64(), live["options"].is_array()),
        (Some(server.at.port().into()), true)
    );
    assert!(live["evidence"]["requests"].as_u64() > Some(0), "{live}");
    let again = heddle(&["advise", "--recording", &recording, "--json"], folder.path());
    let again: Value = serde_json::from_slice(&again.stdout).expect("one object");
    assert_eq!(again, live);
    let model: Value =
        serde_json::from_str(&fs::read_to_string(model).expect("it was written")).expect("JSON");
    assert_eq!(model["queues"].as_array().map(Vec::len), Some(2), "{}", model["queues"]);
    let words = text(&heddle(&["advise", "--recording", &recording], folder.path()).stdout);
    assert!(words.contains(&format!("at port {port}: 2 workers with a queue each")), "{words}");
}

#[test]
fn a_check_ends_with_the_change_undone_and_a_verdict() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let folder = temp_dir();
    let (file, windows) = (folder.path().join("advice.json"), folder.path().join("windows.json"));
    advice(&server, &file);
    let (file, windows) = (file.to_str().expect("text"), windows.to_str().expect("text"));
    let arguments = [
        "advise", "check", "--advice", file, "--pairs", "2", "--window", "1s", "--save", windows,
        "--json",
    ];
    let output = with_load(&room, &server, || room.heddle(&arguments));
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{}", text(&output.stderr));
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(verdict["outcome"]["verdict"].is_string(), "{verdict}");
    assert_eq!(attached(&room), 0);
    let windows: Value =
        serde_json::from_str(&fs::read_to_string(windows).expect("it was written")).expect("JSON");
    let on: Vec<bool> = windows["windows"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|window| window["on"].as_bool())
        .collect();
    assert_eq!(on, [false, true, false, true]);
}

#[test]
fn a_check_that_is_killed_leaves_nothing_behind() {
    let Some((room, _server, _folder, file)) = advised() else { return };
    let mut child = checking(&room, &file);
    send(&child, Signal::KILL);
    child.wait().expect("it has ended");
    until("the guard undoes the change", || attached(&room) == 0);
}

#[test]
fn an_interrupted_check_undoes_the_change_first() {
    let Some((room, _server, _folder, file)) = advised() else { return };
    let mut child = checking(&room, &file);
    send(&child, Signal::INT);
    assert_eq!(child.wait().expect("it has ended").code(), Some(130));
    assert_eq!(attached(&room), 0);
}

#[test]
fn a_port_that_is_steered_already_is_left_alone() {
    let Some((room, server, _folder, file)) = advised() else { return };
    room.ok(&["steer", "attach", "--port", &server.port(), "--policy", "jsq"]);
    let said = room.refused(1, &["advise", "check", "--advice", file.to_str().expect("text")]);
    assert!(said.contains("policy jsq") && said.contains("heddle steer detach"), "{said}");
    assert_eq!(attached(&room), 1);
}

#[test]
fn a_check_that_is_stopped_loses_its_lease() {
    let Some((room, _server, _folder, file)) = advised() else { return };
    let mut child = checking(&room, &file);
    // Between the look and the signal the check may have undone the change itself.
    until("it is stopped while the change is in effect", || {
        send(&child, Signal::STOP);
        let is_on = attached(&room) == 1;
        if !is_on {
            send(&child, Signal::CONT);
        }
        is_on
    });
    until("the guard undoes the change", || attached(&room) == 0);
    send(&child, Signal::CONT);
    assert_eq!(child.wait().expect("it has ended").code(), Some(1));
    assert_eq!(attached(&room), 0);
}

#[test]
fn tuning_without_apply_changes_nothing_and_keeps_a_journal() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let folder = temp_dir();
    let journal = folder.path().join("tune.jsonl");
    let (port, path) = (server.port(), journal.to_str().expect("text"));
    // A limit that no request keeps, so that it looks for a policy.
    let slo = ["tune", "--port", &port, "--slo", "p50 < 1ns", "--guard", "rate >= 1%"];
    let output = with_load(&room, &server, || {
        room.heddle(
            &[&slo[..], &["--epoch", "5s", "--for", "11s", "--json", "--journal", path]].concat(),
        )
    });
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert_eq!(lines, fs::read_to_string(&journal).expect("it was written"));
    let steps: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let named = |name: &str| steps.iter().filter(|step| step["step"] == name).count();
    assert!(named("epoch") >= 2, "{lines}");
    assert_eq!((named("trial"), named("undone"), attached(&room)), (0, 0, 0), "{lines}");
    assert!(steps.iter().all(|step| step["time_ms"].is_u64()), "{lines}");
}

#[test]
fn a_service_that_does_not_run_yet_is_advised_from_a_scenario_or_a_trace() {
    let folder = temp_dir();
    let trace = folder.path().join("monday.csv");
    let row = |n: u64| {
        format!("{},{}\n", n * 100_000, if n.is_multiple_of(50) { 2_000_000 } else { 50_000 })
    };
    let rows: String = (0..20_000).map(row).collect();
    fs::write(&trace, format!("arrival,service\n{rows}")).expect("written");
    let trace = trace.to_str().expect("text");
    let output = heddle(&["advise", "--trace", trace, "--workers", "4", "--json"], folder.path());
    let said: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let names: Vec<&str> = said["options"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|o| o["change"]["steer"]["policy"].as_str())
        .collect();
    assert!(names.contains(&"jiq"), "{said}");
    let scenario = heddle(&["advise", "--scenario", "rocksdb", "--workers", "6"], folder.path());
    let words = text(&scenario.stdout);
    assert!(
        words.starts_with("rocksdb, as designed: 6 workers"),
        "{words}{}",
        text(&scenario.stderr)
    );
    let missing = heddle(&["advise", "--trace", "no.csv", "--workers", "2"], folder.path());
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("no.csv"), "{}", text(&missing.stderr));
}

#[test]
fn wrong_questions_are_answered_with_what_to_do() {
    let folder = temp_dir();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    fs::write(path("no.json"), "{\"spans\": 3}").expect("written");
    let (missing, wrong) = (path("missing.json"), path("no.json"));
    let cases: [(&[&str], &str); 9] = [
        (&["advise"], "--pid"),
        (&["advise", "--pid", "1", "--slo", "fast"], "p99 < 20ms"),
        (&["advise", "--pid", "1", "--for", "never"], "30s"),
        (&["advise", "--recording", &missing], "missing.json"),
        (&["advise", "--recording", &wrong], "not a recording"),
        (&["tune", "--pid", "1"], "--slo"),
        (&["tune", "--pid", "1", "--slo", "p99 < 1ms", "--epoch", "1s"], "5s or more"),
        (&["tune", "--pid", "1", "--slo", "p99 < 1ms", "--guard", "rate"], "rate >= 95%"),
        (&["advise", "check"], "run `heddle advise` first"),
    ];
    for (arguments, expected) in cases {
        let output = heddle(arguments, folder.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
