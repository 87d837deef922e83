//! The command as scripts use it: exit codes, standard output, broken pipes.

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
fn doctor_prints_text_and_json() {
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
fn a_closed_reader_is_no_error() {
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
fn wrong_usage_is_2_and_the_valid_values_are_named() {
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
        checks.iter().find(|check| check["id"] == "heddled").expect("a check").clone()
    };
    let check = heddled();
    let found = check["found"].as_str().expect("text");
    assert!(check["state"] == "no" && found.contains(path.to_str().unwrap()), "{check}");
    assert!(check["follows"].as_str().expect("text").contains("HEDDLE_SOCKET"), "{check}");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    assert_eq!(heddled()["state"], "yes");
}

#[test]
fn an_earlier_spelling_works_with_a_hint_on_standard_error() {
    for (old, new) in [
        (&["check", "no-such-policy"][..], &["steer", "check", "no-such-policy"][..]),
        (&["serve", "--tcp", "nowhere"], &["kv", "serve", "--tcp", "nowhere"]),
        (&["agent", "--policy", "no-such-policy"], &["agent", "run", "--policy", "no-such-policy"]),
        (&["attach", "--help"], &["steer", "attach", "--help"]),
    ] {
        let (before, now) = (heddle(old), heddle(new));
        assert_eq!((before.status, &before.stdout), (now.status, &now.stdout), "{old:?}");
        let (said, rest) = (text(&before.stderr), text(&now.stderr));
        let hint = said.strip_suffix(&rest).unwrap_or_else(|| panic!("{said} without {rest}"));
        assert!(hint.starts_with("hint: `heddle ") && hint.lines().count() == 1, "{hint}");
    }
    let output = heddle(&["agent", "--quiet", "--policy", "no-such-policy"]);
    assert!(!text(&output.stderr).contains("hint"), "{}", text(&output.stderr));
}

#[test]
fn help_is_a_command_too() {
    let output = heddle(&["help", "steer", "attach"]);
    assert_eq!(output.stdout, heddle(&["steer", "attach", "--help"]).stdout);
    assert_eq!(output.status.code(), Some(0));
}

/// Returns the verbs of a group, as its help lists them.
fn verbs(group: &str) -> Vec<String> {
    let help = text(&heddle(&[group, "--help"]).stdout);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(ToOwned::to_owned).collect()
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = heddle(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut pages: Vec<String> =
        ["demo", "doctor", "policies", "steer", "agent", "go", "kv", "bench", "sim", "compare"]
            .into_iter()
            .chain([
                "apply",
                "diff",
                "status",
                "remove",
                "run",
                "share",
                "cc",
                "cargo",
                "completions",
                "man",
                "top",
                "record",
                "metrics",
                "net",
                "advise",
                "advise-check",
                "tune",
            ])
            .map(|name| format!("heddle-{name}.1"))
            .collect();
    for group in ["steer", "agent", "share", "net", "kv", "bench", "sim"] {
        let verbs = verbs(group);
        assert!(verbs.len() >= 2, "{group}: {verbs:?}");
        pages.extend(verbs.iter().map(|verb| format!("heddle-{group}-{verb}.1")));
    }
    pages.push("heddle.1".into());
    for page in &pages {
        let page = std::fs::read_to_string(folder.path().join(page))
            .unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(page.contains(".SH NAME") && page.contains("Example"), "{page}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), pages.len());
}

#[test]
fn completions_are_scripts_that_bash_can_parse() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = heddle(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let script = text(&output.stdout);
        assert!(script.contains("steer") && script.contains("attach"), "{shell}: {script}");
        if shell == "bash" {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("heddle.bash");
            std::fs::write(&file, script).unwrap();
            let status = Command::new("bash").arg("-n").arg(&file).status().expect("bash");
            assert!(status.success());
        }
    }
}
