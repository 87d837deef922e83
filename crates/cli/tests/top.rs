//! `heddle top` without a terminal.

use std::process::{Command, Output, Stdio};

use heddle_broker::query;
use heddle_telemetry::{Layout, Page};
use heddle_test_support::{Running, until};

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("top").args(arguments).stdin(Stdio::null());
    command.output().expect("the built command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_runtime_and_a_named_process_are_services() {
    let counters = [
        ("heddle_runtime_switches_total", "worker=0"),
        ("heddle_runtime_preemptions_total", "worker=0"),
    ];
    let layout = Layout { labels: "policy=two-queue", counters: &counters, ..Layout::default() };
    let page = Page::create(&layout).expect("a page");
    page.counter(0).add(7);
    page.counter(1).add(1);
    let own = std::process::id();
    let output = top(&["--once", "--json", "--interval", "200ms", "--pid", &own.to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["schema"], 1);
    let services = report["services"].as_array().unwrap();
    let of = |kind: &str| {
        let mine = |row: &&serde_json::Value| row["kind"] == kind && row["processes"][0] == own;
        services.iter().find(mine).unwrap_or_else(|| panic!("{kind}: {report}"))
    };
    let runtime = of("runtime");
    assert_eq!((&runtime["policy"], &runtime["rate"]), (&"two-queue".into(), &0.0.into()));
    let parts = runtime["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["name"] == "worker 0"), "{runtime}");
    let process = of("process");
    assert!(process["load"].is_number() && process["rate"].is_null(), "{process}");
    assert!(process["parts"].as_array().unwrap().len() >= 2, "its threads: {process}");
    // Either the kernel's program runs, or the report says why not.
    let missing = report["missing"].as_array().unwrap().iter();
    let says_why =
        missing.filter_map(|why| why.as_str()).any(|why| why.contains("run-queue delays"));
    assert_eq!(report["ran_meanwhile"].is_null(), says_why, "{report}");
}

/// Runs `heddle top --once --json`, and returns its report.
fn report(arguments: &[&str]) -> serde_json::Value {
    let output = top(&[&["--once", "--json", "--interval", "200ms"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_process_has_a_row_for_each_of_its_pages() {
    let page = |labels: &str, counters: &[(&str, &str)]| {
        let layout = Layout { labels, counters, ..Layout::default() };
        let page = Page::create(&layout).expect("a page");
        page.counters(0..counters.len());
        page
    };
    let _pages = [
        page(
            "layer=events,policy=hybrid",
            &[("heddle_events_taken_total", "worker=3"), ("heddle_events_lost_total", "")],
        ),
        // No enclave of this machine has the name, so that there is no report.
        page(
            "layer=agent,policy=fifo,service=no-enclave",
            &[("heddle_agent_committed_total", ""), ("heddle_agent_failed_total", "")],
        ),
    ];
    let report = report(&[]);
    let services = report["services"].as_array().unwrap();
    let own = std::process::id();
    let is_mine = |row: &&serde_json::Value| row["kind"] == "events" && row["processes"][0] == own;
    let events = services.iter().find(is_mine).unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&events["policy"], &events["rate"]), (&"hybrid".into(), &0.0.into()));
    assert_eq!((&events["lost"], &events["parts"][0]["name"]), (&0.into(), &"worker 3".into()));
    let agent = services.iter().find(|row| row["name"] == "no-enclave").unwrap();
    assert_eq!((&agent["kind"], &agent["policy"]), (&"agent".into(), &"fifo".into()));
    assert_eq!((&agent["rate"], &agent["lost"]), (&0.0.into(), &0.into()));
    assert_eq!(agent["processes"], serde_json::json!([]), "the agent is not what it schedules");
}

#[test]
fn a_share_is_a_service_and_one_without_a_broker_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("both.toml"), folder.path().join("both.sock"));
    let cpu = heddle_sys::thread::affinity().unwrap()[0];
    let lines =
        format!("cpus = \"{cpu}\"\nrealtime = \"never\"\nsocket = \"{}\"\n", socket.display());
    std::fs::write(&file, lines).unwrap();
    let named = ["--share", file.to_str().unwrap()];
    let says_why = |report: &serde_json::Value| {
        let mut missing = report["missing"].as_array().unwrap().iter();
        missing.any(|why| why.as_str().unwrap().contains(socket.to_str().unwrap()))
    };
    assert!(says_why(&report(&named)));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_heddle"));
    let _broker = Running::start_quietly(serve.args(["share", "serve"]).arg(&file));
    until("the broker answers", || query(&socket).is_ok());
    let report = report(&named);
    assert!(!says_why(&report), "{report}");
    let mut services = report["services"].as_array().unwrap().iter();
    let id = format!("share {}", socket.display());
    let share = services.find(|row| row["id"] == id).unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&share["kind"], &share["policy"]), (&"share".into(), &"priority".into()));
    assert_eq!(share["name"], format!("both CPUs {cpu}"));
    assert_eq!((&share["waiting"], &share["processes"]), (&0.into(), &serde_json::json!([])));
}

#[test]
fn names_of_programs_do_not_reach_the_terminal_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("a\u{1b}[2Jb");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut child = Command::new(&program).arg("600").spawn().expect("it starts");
    let output = top(&["--once", "--interval", "100ms", "--pid", &child.id().to_string()]);
    child.kill().and_then(|()| child.wait()).unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("a\\u{1b}[2Jb") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn wrong_usage_is_said_in_a_sentence() {
    for (arguments, says) in [
        (&["--pid", "4194999"][..], "no process 4194999"),
        (&["--port", "1"], "port 1"),
        (&["--interval", "1ms"], "100ms"),
        (&["--share", "/nonexistent.toml"], "/nonexistent.toml"),
    ] {
        let output = top(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}
