//! `heddle share` and `heddle run --share` through the built command. A stub stands in for the preloaded library.

#[allow(dead_code, reason = "it serves the tests of `heddle run`, too")]
#[path = "run/sandbox.rs"]
mod sandbox;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use heddle_broker::query;
use heddle_test_support::{Running, TempDir, temp_dir, until};
use rustix::process::{Pid, Signal, kill_process};

use sandbox::{Sandbox, text};

/// Writes the file of a share of one CPU, whose broker listens beside it.
fn share(lines: &str) -> (TempDir, PathBuf, PathBuf) {
    let folder = temp_dir();
    let (file, socket) = (folder.path().join("share.toml"), folder.path().join("share.sock"));
    let cpu = heddle_sys::thread::affinity().unwrap()[0];
    let text = format!(
        "cpus = \"{cpu}\"\nrealtime = \"never\"\nsocket = \"{}\"\n{lines}\n",
        socket.display()
    );
    fs::write(&file, text).unwrap();
    (folder, file, socket)
}

fn heddle(words: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.arg("share").args(words).arg(file).output().unwrap()
}

#[test]
fn a_broker_is_listed_shown_and_stopped() {
    let (_folder, file, socket) = share("slice = \"5ms\"");
    let none = heddle(&["status"], &file);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no broker runs for"), "{}", text(&none.stderr));
    assert_eq!(text(&heddle(&["ls"], &file).stdout), "No broker runs.\n");

    let mut serve = Command::new(env!("CARGO_BIN_EXE_heddle"));
    let mut broker = Running::start_quietly(serve.args(["share", "serve"]).arg(&file));
    until("the broker answers", || query(&socket).is_ok());
    let status = text(&heddle(&["status"], &file).stdout);
    assert!(status.contains("slice 5ms, ordinary threads"), "{status}");
    assert!(status.contains("no application has work"), "{status}");
    let json: serde_json::Value =
        serde_json::from_slice(&heddle(&["status", "--json"], &file).stdout).unwrap();
    assert_eq!((&json["schema"], &json["share"]["pid"]), (&1.into(), &broker.pid().into()));
    let list = text(&heddle(&["ls"], &file).stdout);
    assert!(list.contains(socket.to_str().unwrap()), "{list}");
    let top = heddle(&["top", "--interval", "100ms", "--count", "2"], &file);
    assert!(top.status.success());
    assert_eq!(text(&top.stdout).matches("no application").count(), 2, "{}", text(&top.stdout));
    let second = heddle(&["serve"], &file);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another broker runs at"), "{}", text(&second.stderr));

    broker.signal(Signal::TERM);
    assert_eq!(broker.exit_code(), 0);
    assert!(!socket.exists());
}

#[test]
fn ctrl_c_ends_top_with_130() {
    let (_folder, file, socket) = share("");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_heddle"));
    let _broker = Running::start_quietly(serve.args(["share", "serve"]).arg(&file));
    until("the broker answers", || query(&socket).is_ok());
    let before = query(&socket).unwrap().share.uptime_ms;
    let mut top = Command::new(env!("CARGO_BIN_EXE_heddle"));
    let top = top.args(["share", "top", "--interval", "100ms"]).arg(&file);
    let mut top = Running::start(top.stdout(std::process::Stdio::piped()));
    let mut line = String::new();
    let output = top.child().stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
    top.signal(Signal::INT);
    assert_eq!(top.exit_code(), 130);
    assert!(query(&socket).unwrap().share.uptime_ms >= before);
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    let (_folder, file, _) = share("priority = 99");
    for command in ["serve", "status", "top", "ls"] {
        let output = heddle(&[command], &file);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let said = text(&output.stderr);
        assert!(said.contains("share.toml:4: `priority`") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_program_gets_the_share_and_a_broker_that_is_not_its_child() {
    let (_folder, file, socket) = share("");
    let sandbox = Sandbox::new();
    let file = file.to_str().unwrap();
    let script = "read children < /proc/$$/task/$$/children
        echo $HEDDLE_SHARE $HEDDLE_SHARE_CLASS $HEDDLE_SHARE_NAME children: $children";
    let run = |class: &[&str]| {
        let words = [&["--share", file], class, &["--", "sh", "-c", script]].concat();
        let output = sandbox.output(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let first = run(&[]);
    let line = |class: &str| format!("{} {class} sh children:\n", socket.display());
    assert_eq!(first, line("lc"));
    let broker = query(&socket).unwrap().share.pid;
    assert_eq!(run(&["--class", "be", "--class", "lc=net*"]), line("be"));
    assert_eq!(query(&socket).unwrap().share.pid, broker, "the same one");
    kill_process(Pid::from_raw(broker.cast_signed()).unwrap(), Signal::TERM).unwrap();
    until("it has ended", || !socket.exists());
}

#[test]
fn a_broker_that_does_not_start_is_a_refusal_with_its_words() {
    let (_folder, file, socket) = share("");
    let sandbox = Sandbox::new();
    fs::write(&file, format!("cpus = \"4000\"\nsocket = \"{}\"", socket.display())).unwrap();
    let file = file.to_str().unwrap();
    sandbox.refuses(&["--share", file, "--", "true"], &["cannot start the broker of", "CPUs 4000"]);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let (_folder, file, _) = share("");
    let sandbox = Sandbox::new();
    let file = file.to_str().unwrap();
    sandbox.refuses(&["--class", "be", "--", "true"], &["--share FILE", "CLASS=PATTERN"]);
    sandbox.refuses(
        &["--share", file, "--class", "be", "--class", "lc", "--", "true"],
        &["one class", "be and lc"],
    );
    let unknown = ["--share", file, "--class", "batch", "--", "true"];
    sandbox.refuses(&unknown, &["--class batch", "lc or be", "be=compact*"]);
    sandbox.refuses(&["--share", "/no/such.toml", "--", "true"], &["cannot read /no/such.toml"]);
    for option in [["--cpus", "0"], ["--workers", "1"]] {
        let output = sandbox.output(&[&["--share", file], &option[..], &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--share"), "{}", text(&output.stderr));
    }
}
