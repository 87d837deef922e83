//! Programs in C and Rust that know nothing of Heddle, without the library and under it, by several policies.
//!
//! Each program checks itself: it exits with 0, or prints what was wrong. What passes with the C library's threads must
//! pass with tasks.

use heddle_test_support::c::build_library;
use heddle_test_support::{temp_dir, workspace_root};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;

/// The policies under which every program runs: work stealing and one queue without a quantum, for which the library
/// adds a slice, and two that preempt.
const POLICIES: [&str; 4] =
    ["work-stealing", "fifo", "round-robin:quantum=100us", "two-queue:quantum=100us"];

/// Returns the library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    const FILE: &str = "libheddle_pthread.so";
    LIBRARY.get_or_init(|| build_library("heddle-posix", FILE).join(FILE))
}

/// Runs `program` and returns its status and what it printed. `policy` puts the library before it.
fn run(program: &Path, policy: Option<&str>) -> (ExitStatus, String) {
    let folder = temp_dir();
    let output = folder.path().join("output");
    let file = File::create(&output).expect("an output file");
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(file.try_clone().expect("a descriptor")).stderr(file);
    if let Some(policy) = policy {
        command.env("LD_PRELOAD", library()).env("HEDDLE_POLICY", policy);
    }
    let status = command.status().expect("the program starts");
    (status, std::fs::read_to_string(&output).expect("its output"))
}

/// Runs `program` without the library and under each policy.
fn passes(program: &Path) {
    for policy in [None].into_iter().chain(POLICIES.map(Some)) {
        let (status, output) = run(program, policy);
        let under = policy.unwrap_or("the C library's threads");
        assert!(status.success(), "{} under {under}: {status}\n{output}", program.display());
    }
}

/// Compiles `tests/c/NAME.c` and runs it.
fn c(name: &str) {
    compile(Command::new("cc").args(["-O2", "-Wall", "-Werror", "-pthread"]), "c", name, "c");
}

/// Compiles `tests/FOLDER/NAME.EXTENSION` by `compiler` and runs it.
fn compile(compiler: &mut Command, folder: &str, name: &str, extension: &str) {
    let output = temp_dir();
    let program = output.path().join(name);
    let file = format!("crates/posix/tests/{folder}/{name}.{extension}");
    let built = compiler.arg("-o").args([&program, &workspace_root().join(&file)]).status();
    assert!(built.expect("the compiler starts").success(), "{file} compiles");
    passes(&program);
}

#[test]
fn barriers() {
    c("barriers");
}

#[test]
fn c11() {
    c("c11");
}

#[test]
fn cancels() {
    c("cancels");
}

#[test]
fn conditions() {
    c("conditions");
}

#[test]
fn files() {
    c("files");
}

#[test]
fn forks() {
    c("forks");
}

#[test]
fn futexes() {
    c("futexes");
}

#[test]
fn mutexes() {
    c("mutexes");
}

#[test]
fn polls() {
    c("polls");
}

#[test]
fn rwlocks() {
    c("rwlocks");
}

#[test]
fn semaphores() {
    c("semaphores");
}

#[test]
fn signals() {
    c("signals");
}

#[test]
fn sockets() {
    c("sockets");
}

#[test]
fn threads() {
    c("threads");
}

#[test]
fn rust_s_standard_library() {
    let edition = ["-O", "--edition", "2021"];
    compile(Command::new("rustc").args(edition), "rust", "std_threads", "rs");
}
