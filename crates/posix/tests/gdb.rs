//! `scripts/gdb/heddle.py`: what gdb shows of the threads of a program under the library, in a process and in its core.

use heddle_test_support::c::build_library;
use heddle_test_support::{find_program, run, temp_dir, workspace_root};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const POLICY: &str = "two-queue:quantum=1ms";
const SIGABRT: i32 = 6;

/// Runs gdb on `program` with these commands after the script's. Returns what it printed; `None` if it may not trace
/// programs here.
fn gdb(program: &Path, core: Option<&Path>, commands: &[&str]) -> Option<String> {
    let mut gdb = Command::new("gdb");
    gdb.env_remove("DEBUGINFOD_URLS");
    gdb.args(["-nx", "-batch", "-x"]).arg(workspace_root().join("scripts/gdb/heddle.py"));
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let output = gdb.arg(program).args(core).output().expect("gdb starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let complaints = text(&output.stderr);
    if complaints.contains("Operation not permitted") {
        eprintln!("SKIPPED: gdb may not trace programs here: {complaints}");
        return None;
    }
    Some(text(&output.stdout) + &complaints)
}

fn assert_line(said: &str, parts: &[&str]) {
    let has = said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has, "no line with {parts:?} in\n{said}");
}

/// Asserts that `said` lists and shows the threads of tests/c/tasks.c.
fn assert_tasks(said: &str) {
    assert_line(said, &["for-mutex", "waiting for 0x", "<held>"]);
    assert_line(said, &["for-semaphore", "waiting for 0x"]);
    for function in ["wants_mutex", "wants_semaphore"] {
        assert_line(said, &["#", &format!(" in {function} (")]);
    }
}

/// Runs `program` under `library` until it dies. Returns its core file; `None` if the machine's settings put cores
/// elsewhere.
fn core(program: &Path, library: &Path) -> Option<PathBuf> {
    let folder = program.parent().expect("it lies in a folder");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited; exec \"$0\" die"]).arg(program).current_dir(folder);
    let status = shell.env("LD_PRELOAD", library).env("HEDDLE_POLICY", POLICY).status();
    assert_eq!(status.expect("sh starts").signal(), Some(SIGABRT));
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let name =
        |path: &PathBuf| path.file_name().is_some_and(|it| it.as_bytes().starts_with(b"core"));
    let found = files.into_iter().find(name);
    if found.is_none() {
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        eprintln!("SKIPPED: no core file here (kernel.core_pattern is {})", pattern.trim());
    }
    found
}

#[test]
fn tasks_of_a_process_and_of_a_core_are_listed_with_their_frames() {
    if find_program("gdb", "apt-get install gdb").is_none() {
        return;
    }
    let folder = temp_dir();
    let program = folder.path().join("tasks");
    let source = workspace_root().join("crates/posix/tests/c/tasks.c");
    run(Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).args([&program, &source]));
    let library =
        build_library("heddle-posix", "libheddle_pthread.so").join("libheddle_pthread.so");
    let preload = format!("set environment LD_PRELOAD {}", library.display());
    let policy = format!("set environment HEDDLE_POLICY {POLICY}");
    let start = ["set startup-with-shell off", &preload, &policy, "break stop_here", "run"];
    let look = ["heddle tasks", "heddle bt all"];
    if let Some(said) = gdb(&program, None, &[&start[..], &look].concat()) {
        assert_tasks(&said);
        assert_line(&said, &["running on worker ", "(LWP "]);
        assert_line(&said, &["#0", "stop_here ("]);
        assert_line(&said, &["#1", "ready ("]);
    }
    if let Some(core) = core(&program, &library) {
        assert_tasks(&gdb(&program, Some(&core), &look).expect("a file may be read"));
    }
}

#[test]
fn mistakes_are_explained() {
    if find_program("gdb", "apt-get install gdb").is_none() {
        return;
    }
    let sleep = Path::new("/bin/sleep");
    let said = gdb(sleep, None, &["heddle tasks"]).expect("nothing is traced");
    assert_line(&said, &["does not run"]);
    if let Some(said) = gdb(sleep, None, &["starti", "heddle tasks"]) {
        assert_line(&said, &["no Heddle runtime here"]);
    }
}
