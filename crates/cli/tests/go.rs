//! `heddle go` through the built command: with stand-ins for the Go tool and for Go, and with the installed Go.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A stand-in for the tool: prints its arguments, one per line, and its input.
const TOOL: &str = r#"
printf 'tool: %s\n' "$@"
cat
echo complaint >&2
[ "$1" = kill ] && kill -TERM $$
exit 7
"#;

/// A stand-in for Go: notes how it was called, and creates a tool at the path of -o. With `together`, it waits
/// for a second one.
const GO: &str = r#"
echo "$*" >> "$NOTES/calls"
env > "$NOTES/env"
ls go.mod heddle-go overlay/_runtime heddle > "$NOTES/sources"
i=0
while [ -e "$NOTES/together" ] && [ $(wc -l < "$NOTES/calls") -lt 2 ]; do
    i=$((i + 1)); [ $i -lt 600 ] || exit 9
    sleep 0.1
done
echo noise
[ -e "$NOTES/fail" ] && { echo 'no space left on device' >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
cp "$NOTES/tool" "$2"
"#;

/// A program in Go that says when it runs, and ends with its input.
const WAITS: &str = r#"package main

import "os"

func main() {
	os.Stdout.WriteString("ready\n")
	os.Stdin.Read(make([]byte, 1))
}
"#;

/// A cache, a folder of commands for PATH, and their notes.
struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        let place = Sandbox { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.path("bin")).unwrap();
        script(&place.path("tool"), TOOL);
        place
    }

    fn with_go() -> Sandbox {
        let place = Sandbox::new();
        script(&place.path("bin/go"), GO);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns `heddle go` with the commands of this sandbox.
    fn go(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
        command.arg("go").args(arguments).env_remove("HEDDLE_GO_TOOL");
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command.env("XDG_CACHE_HOME", self.path("cache")).env("NOTES", self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.go(arguments).output().unwrap()
    }

    fn note(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Lists the folder of the tools.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache/heddle/go-tool")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Writes a script in another process: if it were open here while another test forks, running it would fail
/// ("text file busy").
fn script(path: &Path, text: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", r#"cat > "$0" && chmod +x "$0""#]).arg(path).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    write!(shell.stdin.take().unwrap(), "#!/bin/sh\n{text}").unwrap();
    assert!(shell.wait().unwrap().success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(arguments: &[&str]) -> String {
    arguments.iter().map(|argument| format!("tool: {argument}\n")).collect()
}

#[test]
fn arguments_input_output_and_status_are_passed_through() {
    let place = Sandbox::new();
    for arguments in [
        &["build", "-o", "x y", "./..."][..],
        &["--help"],
        &["-h", "--version"],
        &["check", "--json"],
        &["run", ".", "--", "-x", "--", ""],
        &["test", "-run=A|B", "-args", "--json"],
    ] {
        let mut heddle = place.go(arguments);
        heddle.env("HEDDLE_GO_TOOL", place.path("tool")).stdin(Stdio::piped());
        let mut heddle = heddle.spawn().unwrap();
        heddle.stdin.take().unwrap().write_all(b"input\n").unwrap();
        let output = heddle.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{arguments:?}");
        assert_eq!(text(&output.stdout), said(arguments) + "input\n");
        assert_eq!(text(&output.stderr), "complaint\n");
    }
    assert!(!place.path("cache").exists(), "a tool that is given needs no cache");
}

#[test]
fn a_signal_that_ends_the_tool_ends_the_command() {
    let place = Sandbox::new();
    let output = place.go(&["kill"]).env("HEDDLE_GO_TOOL", place.path("tool")).output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn a_missing_tool_is_named() {
    let place = Sandbox::new();
    let output = place.go(&["check"]).env("HEDDLE_GO_TOOL", "/nonexistent/tool").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot run /nonexistent/tool"), "{output:?}");
}

#[test]
fn the_tool_is_built_once_for_this_machine_and_leaves_nothing_else() {
    let place = Sandbox::with_go();
    let mut first = place.go(&["build", "-x"]);
    first.envs([("GOOS", "plan9"), ("GOARCH", "mips"), ("GOFLAGS", "-mod=mod -tags=x")]);
    let output = first.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(text(&output.stderr), "heddle: building heddle-go (once)\ncomplaint\n");
    // Go's messages are not among the results.
    assert_eq!(text(&output.stdout), said(&["build", "-x"]));
    for line in place.note("env").lines() {
        let (name, value) = line.split_once('=').unwrap_or_default();
        assert!(!["GOOS", "GOARCH", "GOFLAGS"].contains(&name), "{line}");
        assert!(name != "GOENV" || value == "off", "go env -w counts: {line}");
    }
    let sources = place.note("sources");
    assert!(sources.contains("main.go") && sources.contains("zheddle.go"), "{sources}");
    assert!(!sources.contains("_test.go") && !sources.contains("testdata"), "{sources}");

    let output = place.run(&["build", "again"]);
    assert_eq!(text(&output.stderr), "complaint\n");
    assert_eq!(text(&output.stdout), said(&["build", "again"]));
    assert_eq!(place.note("calls").lines().count(), 1, "the second run builds nothing");
    assert_eq!(place.kept().len(), 1, "{:?}", place.kept());
}

#[test]
fn two_concurrent_builds_both_succeed() {
    let place = Sandbox::with_go();
    fs::write(place.path("together"), "").unwrap();
    let children: Vec<Child> = (0..2).map(|_| place.go(&["run"]).spawn().unwrap()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), said(&["run"])));
    }
    assert_eq!(place.note("calls").lines().count(), 2, "both built");
    assert_eq!(place.kept().len(), 1, "{:?}", place.kept());
}

#[test]
fn without_go_the_error_says_what_to_install() {
    let place = Sandbox::new();
    let output = place.go(&["build"]).env("PATH", place.path("bin")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("no go in PATH; install Go 1.25"), "{complaint}");
    assert_eq!(place.kept().len(), 0);
}

#[test]
fn a_failed_build_leaves_nothing_and_is_retried() {
    let place = Sandbox::with_go();
    fs::write(place.path("fail"), "").unwrap();
    let output = place.run(&["build"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("no space left on device\n"), "Go's own words: {complaint}");
    assert!(complaint.contains("Go cannot build heddle-go"), "{complaint}");
    assert_eq!(place.kept().len(), 0);
    fs::remove_file(place.path("fail")).unwrap();
    assert_eq!(place.run(&["build"]).status.code(), Some(7));
}

/// Not even root can create folders in a file.
#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let place = Sandbox::with_go();
    fs::write(place.path("cache"), "").unwrap();
    let output = place.run(&["build"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    let folder = place.path("cache/heddle/go-tool").display().to_string();
    assert!(complaint.contains(&folder) && complaint.contains("XDG_CACHE_HOME"), "{complaint}");
    assert!(complaint.contains("because: Not a directory"), "{complaint}");

    let mut nowhere = place.go(&["build"]);
    nowhere.env_remove("XDG_CACHE_HOME").env_remove("HOME").env_remove("GOCACHE");
    let output = nowhere.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("none of HOME, XDG_CACHE_HOME and GOCACHE is set"), "{complaint}");
}

/// As in a container without a home, where Go only needs a cache.
#[test]
fn without_a_home_gos_own_cache_keeps_the_tool() {
    let place = Sandbox::with_go();
    let mut homeless = place.go(&["build"]);
    homeless.env_remove("XDG_CACHE_HOME").env_remove("HOME");
    let output = homeless.env("GOCACHE", place.path("cache")).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(place.kept().len(), 1);
}

/// Returns the cache of the installed Go. Prints a line and returns `None` if there is none that Heddle supports.
fn installed_go() -> Option<String> {
    let found = Command::new("go").args(["env", "GOVERSION", "GOCACHE"]).output();
    let Ok(found) = found else {
        eprintln!("SKIPPED: there is no go in PATH");
        return None;
    };
    let found = text(&found.stdout);
    let mut lines = found.lines();
    let (version, cache) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if version.starts_with("go1.1") || version < "go1.25" {
        eprintln!("SKIPPED: {version} is older than Go 1.25");
        return None;
    }
    Some(cache.into())
}

#[test]
fn the_installed_go_builds_the_tool_of_this_command() {
    let Some(cache) = installed_go() else { return };
    let place = Sandbox::new();
    let run = |path: &str| {
        let mut command = place.go(&["--help"]);
        // The user's settings for a cross build must have no effect.
        command.envs([
            ("PATH", path),
            ("GOCACHE", &cache),
            ("GOOS", "plan9"),
            ("GOFLAGS", "-mod=vendor"),
        ]);
        command.output().unwrap()
    };
    let output = run(&std::env::var("PATH").unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let help = text(&output.stdout);
    assert!(help.contains("HEDDLE_GO"), "{help}");
    assert!(help.contains("\n  heddle go check"), "the command that was typed: {help}");
    assert!(!help.contains("heddle-go"), "another command than was typed: {help}");
    let again = run("/nonexistent");
    assert_eq!((text(&again.stdout), text(&again.stderr)), (help, String::new()));
}

/// What the scheduler in Go writes is what the reader in Rust reads.
#[test]
fn a_go_program_is_found_by_its_page_and_has_a_row() {
    let Some(cache) = installed_go() else { return };
    let place = Sandbox::new();
    fs::create_dir(place.path("program")).unwrap();
    fs::write(place.path("program/main.go"), WAITS).unwrap();
    fs::write(place.path("program/go.mod"), "module waits\n\ngo 1.25\n").unwrap();
    let mut build = place.go(&["build", "-o", "waits", "."]);
    build.current_dir(place.path("program")).env_remove("GOFLAGS");
    build.env("PATH", std::env::var("PATH").unwrap()).env("GOCACHE", cache);
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let mut program = Command::new(place.path("program/waits"));
    program.env_remove("HEDDLE_GO").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut said = String::new();
    let stdout = program.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said).unwrap();
    assert_eq!(said, "ready\n");
    let found = heddle_telemetry::find(program.id()).unwrap();
    let [page] = &found[..] else { panic!("one page: {found:?}") };
    assert_eq!(page.labels(), "layer=go,policy=two-queue");
    let names: Vec<String> = page.counters().into_iter().map(|counter| counter.name).collect();
    assert_eq!(names.len(), 9, "{names:?}");
    assert!(names.iter().any(|name| name == "heddle_go_preemptions_total"), "{names:?}");
    let top = ["top", "--once", "--json", "--interval", "200ms"];
    let shown = Command::new(env!("CARGO_BIN_EXE_heddle")).args(top).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let is_it =
        |row: &serde_json::Value| row["kind"] == "go" && row["processes"][0] == program.id();
    assert!(report["services"].as_array().unwrap().iter().any(is_it), "{report}");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
