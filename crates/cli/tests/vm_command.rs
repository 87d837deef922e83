//! `heddle agent` on sched_ext, in the guest of `make test-vm`; elsewhere the tests are skipped.

#[allow(dead_code, reason = "shared with the tests on the real-time backend")]
#[path = "agent/bench.rs"]
mod bench;
#[path = "agent/program.rs"]
mod program;
#[allow(dead_code, reason = "rooms are for tests on this machine")]
#[path = "steer/room.rs"]
mod room;
#[path = "agent/tenants.rs"]
mod tenants;

use std::time::Instant;

use bench::{Bench, Running, all_progress, are_ordinary, kill, threads, until};
use rustix::process::Signal;
use serde_json::Value;
use tenants::Met;

/// Not a test: the program that the tests schedule.
#[test]
fn program() {
    program::main();
}

/// Not a test either: two tenants.
#[test]
fn tenants_program() {
    tenants::main();
}

/// The number of SCHED_EXT.
const EXT: i32 = 7;

/// With patience and grace for an emulated machine that waits for its host.
#[rustfmt::skip]
const OPTIONS: [&str; 13] = [
    "run", "--backend", "scx", "--policy", "shinjuku:quantum=4ms", "--cpus", "2-3", "--name", "vm",
    "--patience", "20s", "--grace", "20s",
];

/// Starts the program, and waits until its agent has committed some threads.
fn scheduled(bench: &Bench) -> (Running, Value) {
    scheduled_with(bench, &[])
}

fn scheduled_with(bench: &Bench, more: &[&str]) -> (Running, Value) {
    let agent = bench.start(&[&OPTIONS, more].concat(), &bench.program());
    let enclave = bench.enclave_when("it works", |enclave| {
        enclave["report"]["committed"].as_u64() > Some(20)
            && enclave["report"]["threads"].as_u64() >= Some(6)
    });
    (agent, enclave)
}

#[test]
fn a_program_is_scheduled_by_sched_ext_and_leaves_nothing() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, enclave) = scheduled(&bench);
    let pid = &enclave["guardian"]["pid"];
    assert_eq!(enclave["guardian"]["backend"], "scx");
    assert!(threads(pid).iter().all(|thread| thread.policy == EXT), "{:?}", threads(pid));
    all_progress(pid);
    bench.end();
    assert_eq!(agent.exit_code(), 9, "{}", agent.stderr());
    bench.is_clean();
}

#[test]
fn an_upgrade_under_load_fails_no_commit_and_loses_no_thread() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, old) = scheduled(&bench);
    let output = bench.run(&["upgrade", "vm", "--json"], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    println!("upgrade: {answer}");
    assert_eq!(answer["failed"], 0, "{answer}");
    let new = bench.enclave_when("the new agent works", |enclave| {
        enclave["guardian"]["upgrades"] == 1 && enclave["report"]["committed"].as_u64() > Some(20)
    });
    assert_eq!(new["report"]["threads"], old["report"]["threads"]);
    let pid = &new["guardian"]["pid"];
    all_progress(pid);
    assert!(threads(pid).iter().all(|thread| thread.policy == EXT));
    bench.end();
    assert_eq!(agent.exit_code(), 9, "{}", agent.stderr());
    bench.is_clean();
}

#[test]
fn a_killed_agent_returns_all_threads() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, enclave) = scheduled_with(&bench, &["--restarts", "0"]);
    let pid = &enclave["guardian"]["pid"];
    let before = threads(pid).len();
    let begin = Instant::now();
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    until("all threads are ordinary", || are_ordinary(pid));
    println!("agent killed: all threads ordinary after {} ms", begin.elapsed().as_millis());
    all_progress(pid);
    assert_eq!(threads(pid).len(), before, "none is lost");
    bench.end();
    assert_eq!(agent.exit_code(), 9, "{}", agent.stderr());
    assert!(agent.stderr().contains("goes on without a policy"), "{}", agent.stderr());
    bench.is_clean();
}

#[test]
fn a_killed_agent_is_replaced() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, enclave) = scheduled(&bench);
    let pid = &enclave["guardian"]["pid"];
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    let next = bench.enclave_when("its successor works", |enclave| {
        enclave["guardian"]["restarts"] == 1
            && enclave["guardian"]["stage"] == "active"
            && enclave["report"]["committed"].as_u64() > Some(20)
            && enclave["report"]["threads"].as_u64() >= Some(6)
    });
    assert_ne!(next["guardian"]["agent"], enclave["guardian"]["agent"]);
    assert!(threads(pid).iter().all(|thread| thread.policy == EXT), "{:?}", threads(pid));
    all_progress(pid);
    bench.end();
    assert_eq!(agent.exit_code(), 9, "{}", agent.stderr());
    bench.is_clean();
}

#[test]
fn the_kernel_ending_the_scheduler_is_reported_and_returns_all_threads() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, enclave) = scheduled(&bench);
    let pid = &enclave["guardian"]["pid"];
    std::fs::write("/proc/sysrq-trigger", "S").expect("sysrq");
    let given = bench
        .enclave_when("it is reported", |enclave| enclave["guardian"]["stage"] == "given-back");
    let why = given["guardian"]["reason"].as_str().unwrap_or_default();
    assert!(why.starts_with("the kernel ended the sched_ext scheduler: "), "{why}");
    assert!(why.contains("sysrq-S"), "the kernel's own words: {why}");
    assert_eq!(given["guardian"]["restarts"], 0, "the kernel ended it on request");
    until("all threads are ordinary", || are_ordinary(pid));
    assert_eq!(bench.run(&["status"], &[]).status.code(), Some(1));
    all_progress(pid);
    bench.end();
    assert_eq!(agent.exit_code(), 9, "{}", agent.stderr());
    assert!(agent.stderr().contains("given back to the default scheduler"), "{}", agent.stderr());
    bench.is_clean();
}

#[test]
fn a_killed_guardian_and_agent_leave_no_sched_ext_thread() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, enclave) = scheduled(&bench);
    let pid = &enclave["guardian"]["pid"];
    // At once: neither has time for the other's duties, and no status cleans up.
    agent.signal(Signal::STOP);
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    agent.signal(Signal::KILL);
    assert_eq!(agent.exit_code(), 137);
    until("all threads are ordinary", || are_ordinary(pid));
    all_progress(pid);
    until("nothing is pinned", || {
        std::fs::read_dir("/sys/fs/bpf/heddle/agent").is_ok_and(|all| all.count() <= 1)
    });
    bench.is_clean();
    bench.end();
    until("the program ends", || threads(pid).is_empty());
}

#[test]
fn a_killed_guardian_leaves_nothing() {
    let Some(bench) = Bench::in_guest() else { return };
    let (mut agent, enclave) = scheduled(&bench);
    let pid = &enclave["guardian"]["pid"];
    agent.signal(Signal::KILL);
    assert_eq!(agent.exit_code(), 137);
    until("all threads are ordinary", || are_ordinary(pid));
    all_progress(pid);
    until("the agent has ended", || threads(&enclave["guardian"]["agent"]).is_empty());
    bench.is_clean();
    bench.end();
    until("the program ends", || threads(pid).is_empty());
}

/// Two tenants on the two hyperthreads of a core, and their agent.
struct Tenants {
    program: Running,
    agent: Running,
    met: std::path::PathBuf,
}

impl Tenants {
    fn under(bench: &Bench, policy: &str) -> Tenants {
        let met = bench.file("met");
        let mut program = bench.other(&bench.program()[0], &["--exact", "tenants_program"]);
        program.env("AGENT_TEST_END", bench.file("end")).env("AGENT_TEST_MET", &met);
        let program = Running::start_quietly(&mut program);
        // They have their names by then.
        until("the tenants run", || met.exists());
        let pid = program.pid().to_string();
        let classes = ["--class", "1=tenant1", "--class", "2=tenant2", "--pid", &pid];
        let options = ["run", "--policy", policy, "--backend", "scx", "--cpus", "2-3"];
        let patience = ["--name", "tenants", "--patience", "20s", "--grace", "20s"];
        let agent = bench.start(&[&options[..], &patience, &classes].concat(), &[]);
        bench
            .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
        let tenants = Tenants { program, agent, met };
        // What the program has written by then can be from before.
        tenants.meet("it is written anew", |met| met.written >= 2);
        tenants
    }

    /// Waits for something to be met from now on.
    #[track_caller]
    fn meet(&self, what: &str, enough: impl Fn(Met) -> bool) -> Met {
        let before = Met::read(&self.met);
        let mut met = Met::default();
        until(what, || {
            let now = Met::read(&self.met);
            met.written = now.written - before.written;
            met.own = [0, 1].map(|tenant| now.own[tenant] - before.own[tenant]);
            met.foreign = now.foreign - before.foreign;
            enough(met)
        });
        met
    }

    fn end(mut self, bench: &Bench) {
        let stopped = bench.run(&["stop", "tenants"], &[]);
        assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
        assert_eq!(self.agent.exit_code(), 0, "{}", self.agent.stderr());
        bench.end();
        assert_eq!(self.program.exit_code(), 9);
        bench.is_clean();
    }
}

/// ghOSt, section 4.5: core scheduling on a real kernel.
#[test]
fn under_core_edf_tenants_never_run_on_hyperthreads_of_one_core() {
    let Some(bench) = Bench::in_guest() else { return };
    let siblings = "/sys/devices/system/cpu/cpu2/topology/thread_siblings_list";
    let siblings = std::fs::read_to_string(siblings).expect("sysfs");
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    if siblings.trim() == "2" && kernel.starts_with("6.") {
        eprintln!("skipped: Linux {kernel} does not see hyperthreads of QEMU's processor");
        return;
    }
    assert_eq!(siblings.trim(), "2-3");
    let tenants = Tenants::under(&bench, "core-edf:period=400ms,budget=50ms,slice=50ms");
    let both = |least| move |met: Met| met.own.iter().all(|&count| count >= least);
    tenants.meet("all threads are scheduled", both(5));
    let met = tenants.meet("both tenants use both hyperthreads", both(50));
    assert_eq!(met.foreign, 0, "{met:?}");
    tenants.end(&bench);
}

/// The test above can fail.
#[test]
fn under_another_policy_tenants_meet() {
    let Some(bench) = Bench::in_guest() else { return };
    let tenants = Tenants::under(&bench, "shinjuku:quantum=20ms");
    tenants.meet("they meet", |met| met.foreign >= 5);
    tenants.end(&bench);
}
