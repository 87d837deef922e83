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

/// Runs `program` and returns its status and what it printed. `policy` puts the library before it, with `settings`.
fn run(program: &Path, policy: Option<&str>, settings: &[(&str, &str)]) -> (ExitStatus, String) {
    let folder = temp_dir();
    let output = folder.path().join("output");
    let file = File::create(&output).expect("an output file");
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(file.try_clone().expect("a descriptor")).stderr(file);
    if let Some(policy) = policy {
        command.env("LD_PRELOAD", library()).env("HEDDLE_POLICY", policy);
        command.envs(settings.iter().copied());
    }
    let status = command.status().expect("the program starts");
    (status, std::fs::read_to_string(&output).expect("its output"))
}

/// Runs `program` without the library, under each of `policies`, and once more with its first thread left to the
/// kernel: then kernel threads and tasks share what there is.
fn passes(program: &Path, policies: &[&str]) {
    let as_is = [None].into_iter().chain(policies.iter().copied().map(Some));
    let runs = as_is.map(|policy| (policy, None)).chain([(Some(policies[0]), Some(KERNEL_MAIN))]);
    for (policy, setting) in runs {
        let (status, output) = run(program, policy, setting.as_slice());
        let under = policy.unwrap_or("the C library's threads");
        assert!(status.success(), "{program:?} under {under}, {setting:?}: {status}\n{output}");
    }
}

const KERNEL_MAIN: (&str, &str) = ("HEDDLE_PTHREAD_MAIN", "kernel");

/// Compiles `tests/c/NAME.c` and runs it.
fn c(name: &str) {
    c_under(name, &POLICIES);
}

/// Compiles `tests/c/NAME.c` and runs it under `policies`.
fn c_under(name: &str, policies: &[&str]) {
    let folder = temp_dir();
    passes(&compile(cc(), &format!("c/{name}.c"), &folder.path().join(name)), policies);
}

fn cc() -> Command {
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Werror", "-pthread"]);
    compiler
}

/// Compiles `tests/FILE` by `compiler` into `output`, which it returns.
fn compile(mut compiler: Command, file: &str, output: &Path) -> PathBuf {
    let source = workspace_root().join("crates/posix/tests").join(file);
    let built = compiler.arg("-o").args([output, &source]).status();
    assert!(built.expect("the compiler starts").success(), "{file} compiles");
    output.to_owned()
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
fn clocks() {
    c("clocks");
}

#[test]
fn conditions() {
    c("conditions");
}

#[test]
fn descriptors() {
    c("descriptors");
}

#[test]
fn files() {
    c("files");
}

#[test]
fn first() {
    c("first");
}

#[test]
fn forks() {
    c("forks");
}

#[test]
fn futures() {
    c("futures");
}

#[test]
fn futexes() {
    c("futexes");
}

#[test]
fn kept() {
    c("kept");
}

#[test]
fn mutexes() {
    c("mutexes");
}

#[test]
fn once() {
    c("once");
}

#[test]
fn polls() {
    c("polls");
}

#[test]
fn queues() {
    c("queues");
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
    let (mut compiler, folder) = (Command::new("rustc"), temp_dir());
    compiler.args(["-O", "--edition", "2021"]);
    let program = compile(compiler, "rust/std_threads.rs", &folder.path().join("std_threads"));
    passes(&program, &POLICIES);
}

#[test]
fn a_rule_gives_the_threads_of_a_library_their_class() {
    let folder = temp_dir();
    let mut cxx = Command::new("g++");
    cxx.args(["-std=c++17", "-O2", "-Wall", "-Werror", "-pthread", "-shared", "-fPIC"]);
    let module = compile(cxx, "c/classes_module.cpp", &folder.path().join("libclasses.so"));
    let mut linked = cc();
    // Behind the source that needs it.
    linked.arg("-Wl,--no-as-needed").arg(&module).arg("-Wl,-rpath").arg(folder.path());
    let program = compile(linked, "c/classes.c", &folder.path().join("classes"));
    for (rules, says) in [
        ("be=other*", "library first"),
        ("be=module:libclasses.so", "program first"),
        ("lc=module:nothing;be=module:lib?lasses*;lc=*", "program first"),
        ("lc=*;be=module:libclasses*", "library first"),
        ("be=module:classes;lc=module:lib*", "library first"),
    ] {
        let settings = [("HEDDLE_PTHREAD_CLASSES", rules), ("HEDDLE_WORKERS", "1")];
        let (status, output) = run(&program, Some("priority"), &settings);
        assert!(status.success() && output.trim() == says, "{rules}: {status}, {output}");
    }
}

#[test]
fn sigquit_prints_a_report_if_the_program_leaves_it_alone() {
    let folder = temp_dir();
    let program = compile(cc(), "c/quits.c", &folder.path().join("quits"));
    for policy in POLICIES {
        let (status, output) = run(&program, Some(policy), &[("HEDDLE_PTHREAD_REPORT", "1")]);
        assert!(status.success(), "{policy}: {status}\n{output}");
    }
}
