//! `heddle agent` when a step fails, or a process is killed there: whatever the step, all threads are restored,
//! nothing is left that the next status does not remove, and the error says what failed. Requires root, BPF and
//! strace, which injects the faults.
//!
//! `cargo test -p heddle-cli --test agent_faults -- --ignored` tries every step, which takes some minutes.

#[allow(dead_code, reason = "shared with the tests of the command")]
#[path = "agent/bench.rs"]
mod bench;
#[path = "agent/program.rs"]
mod program;
#[allow(dead_code, reason = "rooms are for servers, too")]
#[path = "steer/room.rs"]
mod room;

use std::process::{Child, Command, Stdio};

use bench::{Bench, Running, are_ordinary, cpu, threads, until};
use rustix::process::Signal;

/// Not a test: the program that the tests schedule.
#[test]
fn program() {
    program::main();
}

/// System calls that an enclave makes, each with errors that the kernel may return.
const STEPS: [(&str, &[&str]); 22] = [
    ("bpf", &["EPERM", "ENOMEM"]),
    ("mmap", &["ENOMEM"]),
    ("openat", &["EMFILE"]),
    ("flock", &["ENOLCK"]),
    ("mkdir", &["ENOSPC"]),
    ("rename", &["ENOSPC"]),
    ("write", &["ENOSPC"]),
    ("ftruncate", &["EIO"]),
    ("fchmod", &["EPERM"]),
    ("chmod", &["EPERM"]),
    ("socket", &["EMFILE"]),
    ("socketpair", &["EMFILE"]),
    ("bind", &["ENOSPC"]),
    ("pipe2", &["EMFILE"]),
    ("epoll_create1", &["EMFILE"]),
    ("epoll_ctl", &["ENOMEM"]),
    ("clone3", &["EAGAIN"]),
    ("vfork", &["EAGAIN"]),
    ("sched_setscheduler", &["EPERM"]),
    ("sched_setaffinity", &["ENOMEM"]),
    ("setpriority", &["EPERM"]),
    ("execve", &["ENOMEM"]),
];

/// A program that runs before its enclave exists and after it has ended.
struct Managed(Child);

impl Managed {
    fn start(bench: &Bench) -> Managed {
        let program = bench.program();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).env("AGENT_TEST_END", bench.file("end"));
        let child = command.stdout(Stdio::null()).spawn().expect("this test");
        let managed = Managed(child);
        until("its threads are there", || threads(&managed.pid()).len() >= 6);
        managed
    }

    fn pid(&self) -> serde_json::Value {
        self.0.id().into()
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_strace() -> bool {
    let has = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !has {
        eprintln!("skipped: strace, which injects the faults, is missing (apt-get install strace)");
    }
    has
}

/// Creates and ends an enclave while call number `at` of `call`, in each of its processes, suffers `fate`.
/// Returns whether that happened.
#[track_caller]
fn once(bench: &Bench, managed: &Managed, call: &str, fate: &str, at: usize) -> bool {
    let what = format!("{call}:{fate}:when={at}");
    let (log, inject) = (bench.file("calls"), format!("inject={what}"));
    let (log_name, trace) = (log.to_string_lossy().into_owned(), format!("trace={call}"));
    let strace = ["strace", "-f", "-qq", "-o", &log_name, "-e", &trace, "-e", &inject];
    let (number, list) = (managed.0.id().to_string(), cpu());
    let arguments = [
        "run",
        "--backend",
        "rt",
        "--policy",
        "fifo",
        "--cpus",
        &list,
        "--patience",
        "0s",
        "--name",
        "faulty",
        "--pid",
        &number,
    ];
    let mut agent = bench.start_under(&strace, &arguments);
    let is_active = || bench.status()["enclaves"][0]["guardian"]["stage"] != "starting";
    until("the enclave is active or the command has ended", || {
        agent.has_ended() || (!bench.status()["enclaves"][0].is_null() && is_active())
    });
    end(bench, &mut agent);
    let code = agent.exit_code();
    let looked = bench.run(&["status"], &[]);
    let said = format!(
        "{what}: exit {code}: {}{}",
        agent.stderr(),
        String::from_utf8_lossy(&looked.stderr)
    );
    eprintln!("{said}");
    until(&format!("all threads are ordinary after {said}"), || are_ordinary(&managed.pid()));
    bench.is_clean();
    let calls = std::fs::read_to_string(&log).unwrap_or_default();
    let came = most_by_a_process(&calls, &format!("{call}(")) >= at;
    let is_kill = fate.contains("signal");
    assert!(
        is_kill
            || code == 0
            || agent.stderr().contains("rror")
            || agent.stderr().contains("heddle: "),
        "{said}"
    );
    came
}

/// Returns the maximum number of such calls by one process, as strace counts for each. Lines begin with the process ID.
fn most_by_a_process(calls: &str, call: &str) -> usize {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for line in calls.lines().filter(|line| line.contains(call)) {
        *counts.entry(line.split_whitespace().next().unwrap_or_default()).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

/// Ends an enclave, by a signal if it does not respond.
fn end(bench: &Bench, agent: &mut Running) {
    for _ in 0..100 {
        if agent.has_ended() {
            return;
        }
        let _ = bench.run(&["stop", "faulty"], &[]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        if let Some(guardian) = bench.status()["enclaves"][0]["guardian"]["guardian"].as_i64() {
            let guardian = i32::try_from(guardian).ok().and_then(rustix::process::Pid::from_raw);
            let _ = guardian.map(|pid| rustix::process::kill_process(pid, Signal::TERM));
        }
    }
}

fn each(steps: impl Iterator<Item = (&'static str, String, Vec<usize>)>) {
    let Some(bench) = Bench::new() else { return };
    if !has_strace() {
        return;
    }
    let managed = Managed::start(&bench);
    for (call, fate, ats) in steps {
        for at in ats {
            if !once(&bench, &managed, call, &fate, at) {
                break;
            }
        }
    }
}

#[test]
fn a_step_that_fails_leaves_nothing() {
    let steps = [
        ("bpf", "EPERM", 40),
        ("bind", "ENOSPC", 1),
        ("rename", "ENOSPC", 2),
        ("sched_setscheduler", "EPERM", 3),
        ("sched_setaffinity", "ENOMEM", 8),
    ];
    each(steps.into_iter().map(|(call, error, at)| (call, format!("error={error}"), vec![at])));
}

#[test]
fn a_process_killed_at_a_step_leaves_nothing() {
    let steps = [("mkdir", 3), ("bpf", 60), ("sched_setaffinity", 3)];
    each(steps.into_iter().map(|(call, at)| (call, "signal=SIGKILL".into(), vec![at])));
}

fn every(fates: fn(&'static [&'static str]) -> Vec<String>) {
    let steps = STEPS.into_iter().filter(|(call, _)| {
        std::env::var("FAULTS").map_or(true, |only| only.split(',').any(|one| one == *call))
    });
    each(steps.flat_map(|(call, errors)| {
        fates(errors).into_iter().map(move |fate| (call, fate, (1..400).collect()))
    }));
}

#[test]
#[ignore = "takes minutes: every step"]
fn any_step_that_fails_leaves_nothing() {
    every(|errors| errors.iter().map(|error| format!("error={error}")).collect());
}

#[test]
#[ignore = "takes minutes: every step"]
fn a_process_killed_at_any_step_leaves_nothing() {
    every(|_| vec!["signal=SIGKILL".into()]);
}
