//! Agents in C: the header, its structures, and programs that use it. Tests that need root and BPF are
//! skipped with a message without them.

mod common;

use common::link;
use heddle_test_support::{run, workspace_root};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Returns what is between the braces of `what` in `header`, with C's types and without comments and spaces.
fn body(header: &str, what: &str) -> String {
    let text = fs::read_to_string(workspace_root().join(header)).expect("the header");
    let from =
        text.split(&format!("{what} {{\n")).nth(1).unwrap_or_else(|| panic!("{header}: no {what}"));
    let inner = from.split("\n}").next().expect("an end");
    let code = |line: &str| line.split("/*").next().unwrap_or_default().trim().to_owned();
    let lines = inner.lines().map(code).collect::<Vec<_>>().join("\n");
    lines.replace("__u32", "uint32_t").replace("__u64", "uint64_t")
}

#[test]
fn the_structures_are_those_that_the_kernel_s_programs_use() {
    for what in [
        "struct hd_thread",
        "struct hd_cpu",
        "struct hd_message",
        "struct hd_txn",
        "enum hd_state",
        "enum hd_occupant",
        "enum hd_message_kind",
        "enum hd_result",
    ] {
        let public = body("include/heddle/agent.h", what);
        assert_eq!(public, body("bpf/sched/include/layout.h", what), "{what}");
        assert!(public.lines().count() > 3, "{what}: {public}");
    }
    let flags = |header: &str| {
        let text = fs::read_to_string(workspace_root().join(header)).expect("the header");
        let code = |line: &str| line.split("/*").next().unwrap_or_default().trim().to_owned();
        let of = |line: &&str| {
            line.starts_with("#define HD_TXN_") || line.starts_with("#define HD_THREADS ")
        };
        let mut lines: Vec<_> = text.lines().filter(of).map(code).collect();
        lines.sort();
        lines
    };
    let public = flags("include/heddle/agent.h");
    assert_eq!(public, flags("bpf/sched/include/layout.h"));
    assert_eq!(public.len(), 7);
}

#[test]
fn a_program_in_c_is_an_agent_of_a_simulated_enclave() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("agent");
    link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/agent.c"), &program);
    assert_eq!(run(&mut Command::new(&program)), "fine\n");
}

/// Whether an enclave can be created here; prints why not.
fn able() -> bool {
    use heddle_agent::guardian::{Backends as _, KernelBackends, Kind};
    let works = [Kind::Scx, Kind::Rt].map(|kind| KernelBackends.probe(kind));
    if works.iter().any(Result::is_ok) {
        return true;
    }
    eprintln!("SKIPPED: no backend works here: {works:?}");
    false
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_example_schedules_a_process_until_that_ends() {
    if !able() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("agent-fifo");
    link(&workspace_root().join("examples/agent-fifo-c/agent.c"), &program);
    // Three processes share one CPU, and each sleeps now and then: none of them can end if the agent forgets
    // one.
    let shell = "read go; for i in 1 2 3; do (for j in 1 2 3 4 5; do sleep 0.01; done) & done; wait; echo done";
    let mut server = Command::new("sh");
    server.args(["-c", shell]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Process(server.spawn().expect("started"));
    // The kernel kills an agent that does not sleep after two seconds.
    let mut agent = Command::new("prlimit");
    agent.arg("--rttime=2000000:2000000").arg(&program).args(["0", &server.0.id().to_string()]);
    let mut agent = Process(agent.stdout(Stdio::piped()).spawn().expect("started"));
    let line = |process: &mut Process| {
        let out = process.0.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("read");
        line
    };
    assert_eq!(line(&mut agent), "ready\n");
    drop(server.0.stdin.take());
    assert_eq!(line(&mut server), "done\n");
    assert!(server.0.wait().expect("ended").success());
    assert!(agent.0.wait().expect("ended").success());
}
