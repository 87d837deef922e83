//! `heddle agent`: the real command with a real program, on the real-time backend. Requires root and BPF.

#[allow(dead_code, reason = "the tests in a virtual machine share it")]
#[path = "agent/bench.rs"]
mod bench;
#[path = "agent/program.rs"]
mod program;
#[allow(dead_code, reason = "rooms are for servers, too")]
#[path = "steer/room.rs"]
mod room;

use std::process::Output;

use bench::{Bench, all_progress, are_ordinary, cpu, kill, other_cpu, threads, until};
use heddle_agent::guardian::CLEANER_PROCESS;
use rustix::process::Signal;
use serde_json::Value;

/// Not a test: the program that the tests schedule.
#[test]
fn program() {
    program::main();
}

const POLICY: [&str; 5] = ["run", "--backend", "rt", "--policy", "shinjuku:quantum=2ms"];

/// Without patience limit: on a busy machine, threads wait for reasons unrelated to the test.
fn with(more: &[&str]) -> Vec<String> {
    let place = ["--cpus", &cpu(), "--patience", "0s"];
    POLICY.iter().chain(&place).chain(more).map(ToString::to_string).collect()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_program_is_scheduled_and_shown_and_its_exit_code_is_passed_on() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&["--name", "one"])), &bench.program());
    let enclave = bench.enclave_when("all threads are in", |enclave| {
        enclave["report"]["threads"].as_u64() >= Some(6)
            && enclave["report"]["committed"].as_u64() > Some(20)
    });
    let pid = &enclave["guardian"]["pid"];
    all_progress(pid);
    for thread in threads(pid) {
        assert!([1, 5].contains(&thread.policy), "SCHED_FIFO or SCHED_IDLE: {thread:?}");
        assert_eq!(thread.cpus, cpu());
    }
    let shown = bench.run(&["status", "one"], &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let parts = [
        "one: shinjuku:quantum=2ms on CPUs",
        "rt backend",
        "commits",
        "50 % of a CPU",
        "SCHED_IDLE",
        "lc",
    ];
    for part in parts {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

/// The page has what the report has, and it is shown once.
#[test]
fn an_agent_is_found_by_its_page_and_shown_once() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&["--name", "seen"])), &bench.program());
    let enclave = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = enclave["guardian"]["agent"].as_u64().expect("a process") as u32;
    let found = heddle_telemetry::find(pid).unwrap();
    let [page] = &found[..] else { panic!("one page: {found:?}") };
    assert_eq!(page.labels(), "layer=agent,policy=shinjuku,service=seen");
    let committed = page.counters().into_iter().find(|one| one.name.contains("committed"));
    assert!(committed.is_some_and(|one| one.value > 20));
    let shown = bench.heddle(&["metrics", "--once", "--no-kernel"]);
    let mine = "heddle_agent_committed_total{service=\"seen\",policy=\"shinjuku\"}";
    assert_eq!(shown.matches(mine).count(), 1, "{shown}");
    let shown = bench.heddle(&["top", "--once", "--json", "--interval", "200ms"]);
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    let services = report["services"].as_array().unwrap();
    let rows: Vec<_> = services.iter().filter(|row| row["name"] == "seen").collect();
    let has_processes =
        |row: &Value| row["processes"].as_array().is_some_and(|all| !all.is_empty());
    assert!(rows.len() == 1 && has_processes(rows[0]), "{report}");
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

#[test]
fn a_killed_agent_returns_all_threads() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&["--restarts", "0"])), &bench.program());
    let enclave = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = &enclave["guardian"]["pid"];
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    until("all threads are ordinary", || are_ordinary(pid));
    all_progress(pid);
    let given = bench
        .enclave_when("it is reported", |enclave| enclave["guardian"]["stage"] == "given-back");
    assert_eq!(given["guardian"]["reason"], "it was ended by signal 9");
    let looked = bench.run(&["status"], &[]);
    assert_eq!(looked.status.code(), Some(1), "{}", text(&looked));
    assert!(text(&looked).contains("has no agent any more: it was ended by signal 9"));
    assert!(agent.stderr().contains("the program goes on without a policy"), "{}", agent.stderr());
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

#[test]
fn a_killed_agent_is_replaced() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&[])), &bench.program());
    let enclave = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let (first, pid) = (&enclave["guardian"]["agent"], &enclave["guardian"]["pid"]);
    kill(first, Signal::KILL);
    let next = bench.enclave_when("its successor works", |enclave| {
        enclave["guardian"]["restarts"] == 1
            && enclave["guardian"]["stage"] == "active"
            && enclave["report"]["threads"].as_u64() >= Some(6)
            && enclave["report"]["committed"].as_u64() > Some(20)
    });
    assert_ne!(&next["guardian"]["agent"], first);
    all_progress(pid);
    let shown = bench.run(&["status"], &[]);
    assert!(shown.status.success(), "{}", text(&shown));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("restarted 1 times, the last because it was ended by signal 9"),
        "{shown}"
    );
    assert!(agent.stderr().contains("restart 1 of at most 3"), "{}", agent.stderr());
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

/// Starts a shell with a child, a sleep.
fn master() -> (std::process::Child, u32) {
    let child = std::process::Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn();
    let child = child.expect("a shell");
    let mut sleep = None;
    until("it has a child", || {
        let family = heddle_sys::processes::family(child.id());
        sleep = family.iter().find(|one| one.name() == "sleep").map(|one| one.pid);
        sleep.is_some()
    });
    (child, sleep.expect("it has one"))
}

fn end_master((mut child, sleep): (std::process::Child, u32)) {
    kill(&serde_json::json!(sleep), Signal::KILL);
    let _ = child.kill();
    child.wait().expect("a child");
}

/// Whether a process is managed: its threads are confined to the enclave's CPU.
fn is_in(pid: u32) -> bool {
    threads(&serde_json::json!(pid)).iter().all(|thread| thread.policy != 0)
}

#[test]
fn a_master_joins_with_its_workers_and_this_is_reported() {
    let Some(bench) = Bench::new() else { return };
    let (first, second) = (master(), master());
    let pid = first.0.id().to_string();
    let mut agent = bench.start(&words(&with(&["--pid", &pid, "--name", "masters"])), &[]);
    let enclave = bench.enclave_when("both are in", |enclave| {
        enclave["guardian"]["taken"]["processes"].as_array().is_some_and(|all| all.len() == 2)
    });
    assert_eq!(enclave["guardian"]["taken"]["processes"][1]["name"], "sleep");
    assert!(is_in(first.0.id()) && is_in(first.1));
    let said = agent.stderr();
    let expected =
        format!("took 2 threads of 2 processes: sh ({pid}, 1 thread), sleep ({}, 1", first.1);
    assert!(said.contains(&expected) && said.contains("later join automatically"), "{said}");

    let pid = second.0.id().to_string();
    let joined = bench.run(&["join", "masters", "--pid", &pid], &[]);
    let said = String::from_utf8_lossy(&joined.stdout).into_owned();
    assert!(said.contains("2 threads of 2 processes: sh ("), "{said}{}", text(&joined));
    assert!(is_in(second.0.id()) && is_in(second.1));
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit_code(), 0);
    for one in [first, second] {
        assert!(!is_in(one.0.id()) && !is_in(one.1));
        end_master(one);
    }
    bench.is_clean();
}

/// The cgroup of a fictitious unit, if this process may create one. Removed on drop.
struct Unit(std::path::PathBuf);

impl Unit {
    fn make() -> Option<Unit> {
        let root = heddle_sys::processes::cgroup(std::path::Path::new("/"));
        let folder = root.ok()?.join(format!("heddle-test-{}.service", std::process::id()));
        let made = std::fs::create_dir(&folder);
        made.inspect_err(|error| eprintln!("skipped: cannot create a cgroup here: {error}"))
            .ok()?;
        Some(Unit(folder))
    }

    fn put(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it may be moved");
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        until("its processes have ended", || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_unit_joins_with_processes_that_start_later() {
    let Some(bench) = Bench::new() else { return };
    let Some(unit) = Unit::make() else { return };
    let (first, second) = (master(), master());
    unit.put(first.0.id());
    let name = unit.0.file_stem().and_then(|name| name.to_str()).expect("a name");
    let mut agent = bench.start(&words(&with(&["--unit", name])), &[]);
    until("the first is in", || is_in(first.0.id()));
    assert!(!is_in(first.1) && !is_in(second.0.id()), "in no unit");
    unit.put(second.1);
    until("the later process is in", || is_in(second.1));
    assert!(agent.stderr().contains("enter the cgroup later"), "{}", agent.stderr());
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit_code(), 0);
    for one in [first, second] {
        assert!(!is_in(one.0.id()) && !is_in(one.1));
        end_master(one);
    }
    bench.is_clean();
    let missing = bench.run(&words(&with(&["--unit", "no-such-unit"])), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing).contains("no unit no-such-unit.service is running"),
        "{}",
        text(&missing)
    );
}

#[test]
fn a_hung_agent_loses_its_threads_when_patience_ends() {
    let Some(bench) = Bench::new() else { return };
    let cpu = cpu();
    let options = [&POLICY[..], &["--cpus", &cpu, "--patience", "5s"]].concat();
    let mut agent = bench.start(&options, &bench.program());
    let enclave = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = &enclave["guardian"]["pid"];
    kill(&enclave["guardian"]["agent"], Signal::STOP);
    until("all threads are ordinary", || are_ordinary(pid));
    all_progress(pid);
    let given = bench
        .enclave_when("it is reported", |enclave| enclave["guardian"]["stage"] == "given-back");
    let why = given["guardian"]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("could run waited for longer than 5"), "{why}");
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

#[test]
fn a_killed_guardian_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&[])), &bench.program());
    let enclave = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = &enclave["guardian"]["pid"];
    agent.signal(Signal::KILL);
    until("all threads are ordinary", || are_ordinary(pid));
    all_progress(pid);
    assert_eq!(agent.exit_code(), 137);
    until("the agent has ended", || threads(&enclave["guardian"]["agent"]).is_empty());
    bench.is_clean();
    bench.end();
    until("the program ends", || threads(pid).is_empty());
}

#[test]
fn the_next_status_removes_what_three_killed_processes_left() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&[])), &bench.program());
    let enclave = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = &enclave["guardian"]["pid"];
    // None of them sees another die.
    kill(&cleaner_of(&enclave["guardian"]["guardian"]), Signal::KILL);
    kill(&enclave["guardian"]["agent"], Signal::STOP);
    agent.signal(Signal::KILL);
    assert_eq!(agent.exit_code(), 137);
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    let looked = bench.run(&["status"], &[]);
    assert!(text(&looked).contains("had died: removed what it left"), "{}", text(&looked));
    assert!(are_ordinary(pid));
    bench.is_clean();
    bench.end();
    until("the program ends", || threads(pid).is_empty());
}

/// Returns the process that cleans up after a guardian and its agent.
fn cleaner_of(guardian: &Value) -> Value {
    let children = std::fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children"));
    let children = children.expect("a guardian");
    let is_cleaner = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|command| command.contains(CLEANER_PROCESS))
    };
    let pid = children.split_whitespace().find(is_cleaner).expect("a cleaner");
    pid.parse().expect("a number")
}

#[test]
fn no_thread_notices_an_upgrade_under_load() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&["--name", "up"])), &bench.program());
    let old = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = &old["guardian"]["pid"];
    let output =
        bench.run(&["upgrade", "up", "--policy", "round-robin:quantum=3ms", "--json"], &[]);
    assert!(output.status.success(), "{}", text(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(answer["gap_ms"].as_f64() > Some(0.0), "{answer}");
    let new = bench.enclave_when("the new agent works", |enclave| {
        enclave["report"]["policy"] == "round-robin:quantum=3ms"
            && enclave["report"]["committed"].as_u64() > Some(20)
    });
    assert_ne!(old["guardian"]["agent"], new["guardian"]["agent"]);
    assert_eq!(new["report"]["threads"], old["report"]["threads"]);
    all_progress(pid);
    let wrong = bench.run(&["upgrade", "up", "--policy", "round-robbin"], &[]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    all_progress(pid);
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

/// The program's threads are best-effort, so that others get the CPUs, too.
#[test]
fn an_enclave_grows_moves_and_shrinks_under_load() {
    let (Some(bench), Some(other)) = (Bench::new(), other_cpu()) else { return };
    let own = cpu();
    let both = format!("{other}-{own}");
    let mut agent = bench.start(&words(&with(&["--name", "grows", "--be", "*"])), &bench.program());
    let old = bench.enclave_when("it works", |enclave| {
        enclave["report"]["threads"].as_u64() >= Some(6)
            && enclave["report"]["committed"].as_u64() > Some(20)
    });
    let pid = &old["guardian"]["pid"];
    let resize = |cpus: &str| {
        let output = bench.run(&["resize", "grows", cpus, "--json"], &[]);
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice::<Value>(&output.stdout).expect("one JSON object")
    };
    let grown = resize(&both);
    assert_eq!((&grown["outside"], &grown["moved"]), (&0.into(), &0.into()), "{grown}");
    assert!(grown["gap_ms"].as_f64() > Some(0.0), "{grown}");
    assert_ne!(grown["agent"], old["guardian"]["agent"]);
    until("threads run on the other CPU", || threads(pid).iter().any(|one| one.cpus == other));
    until("threads run on the first", || threads(pid).iter().any(|one| one.cpus == own));
    all_progress(pid);

    let moved = resize(&other);
    assert!(moved["moved"].as_u64() > Some(0), "{moved}");
    assert!(threads(pid).iter().all(|one| one.cpus == other), "{:?}", threads(pid));
    all_progress(pid);
    assert_eq!(threads(pid).len() as u64, old["report"]["threads"].as_u64().unwrap_or(0));
    let shown = bench.run(&["status", "grows"], &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("on CPUs {other}, rt backend")), "{shown}");
    assert!(shown.contains("resized 2 times"), "{shown}");

    // The CPU that it gave up is another enclave's now.
    let mut next = bench.start(&words(&with(&["--name", "next"])), &[]);
    until("there are two", || bench.status()["enclaves"][1]["guardian"]["stage"] == "active");
    for (cpus, code, said) in [
        (both.as_str(), 2, format!("CPU {own} belongs to the enclave `next`")),
        ("4000", 2, "this machine has no CPU 4000".into()),
        ("9-2", 2, "is not a list of CPUs".into()),
    ] {
        let refused = bench.run(&["resize", "grows", cpus], &[]);
        assert_eq!(refused.status.code(), Some(code), "{}", text(&refused));
        assert!(text(&refused).contains(&said), "{}", text(&refused));
    }
    let same = bench.run(&["resize", "grows", &other], &[]);
    let same = String::from_utf8_lossy(&same.stdout).into_owned();
    assert_eq!(same, format!("Enclave grows has CPUs {other} already.\n"));
    next.signal(Signal::TERM);
    assert_eq!(next.exit_code(), 0);
    resize(&both);
    all_progress(pid);
    let stopped = bench.run(&["stop", "grows"], &[]);
    assert!(stopped.status.success(), "{}", text(&stopped));
    assert!(are_ordinary(pid), "{:?}", threads(pid));
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

#[test]
fn an_enclave_that_was_resized_keeps_its_cpus_when_its_agent_dies() {
    let (Some(bench), Some(other)) = (Bench::new(), other_cpu()) else { return };
    let options = with(&["--name", "moved", "--be", "*"]);
    let mut agent = bench.start(&words(&options), &bench.program());
    let old = bench
        .enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    let pid = &old["guardian"]["pid"];
    let output = bench.run(&["resize", "moved", &other], &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("Enclave moved now has CPUs {other}, with a new")), "{said}");
    let new = bench.enclave_when("it has the CPU", |enclave| enclave["guardian"]["resizes"] == 1);
    kill(&new["guardian"]["agent"], Signal::KILL);
    bench.enclave_when("its successor works", |enclave| {
        enclave["guardian"]["restarts"] == 1
            && enclave["guardian"]["stage"] == "active"
            && enclave["report"]["committed"].as_u64() > Some(20)
    });
    assert!(threads(pid).iter().all(|one| one.cpus == other), "{:?}", threads(pid));
    all_progress(pid);
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}

#[test]
fn a_running_process_joins_and_leaves_unchanged() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.program();
    let mut command = std::process::Command::new(&program[0]);
    command.args(&program[1..]).env("AGENT_TEST_END", bench_end(&bench));
    let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("this test");
    let pid = serde_json::json!(child.id());
    until("its threads are there", || threads(&pid).len() >= 6);
    let number = child.id().to_string();
    let mut agent = bench.start(&words(&with(&["--pid", &number, "--name", "joined"])), &[]);
    bench.enclave_when("it works", |enclave| enclave["report"]["committed"].as_u64() > Some(20));
    assert!(threads(&pid).iter().all(|thread| thread.cpus == cpu()));
    let stopped = bench.run(&["stop", "joined"], &[]);
    assert!(
        String::from_utf8_lossy(&stopped.stdout).contains("threads returned"),
        "{}",
        text(&stopped)
    );
    assert_eq!(agent.exit_code(), 0);
    assert!(are_ordinary(&pid), "{:?}", threads(&pid));
    all_progress(&pid);
    bench.is_clean();
    bench.end();
    assert_eq!(child.wait().expect("a child").code(), Some(9));
}

fn bench_end(bench: &Bench) -> std::ffi::OsString {
    let command = bench.command(&[], &[]);
    let mut variables = command.get_envs();
    variables
        .find(|(name, _)| *name == "AGENT_TEST_END")
        .and_then(|(_, value)| value)
        .expect("set")
        .to_owned()
}

#[test]
fn programs_share_an_enclave_without_a_program_of_its_own() {
    let Some(bench) = Bench::new() else { return };
    let mut agent = bench.start(&words(&with(&["--name", "shared"])), &[]);
    bench.enclave_when("it is there", |enclave| enclave["guardian"]["stage"] == "active");
    let mut first = bench.start(&["join", "shared"], &bench.program());
    let mut second = bench.start(&["join", "shared"], &bench.program());
    bench.enclave_when("both are in", |enclave| enclave["report"]["threads"].as_u64() >= Some(12));
    let unknown = bench.run(&["join", "unknown", "--pid", "1"], &[]);
    assert!(text(&unknown).contains("there is no enclave `unknown`"), "{}", text(&unknown));
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit_code(), 0);
    bench.is_clean();
    bench.end();
    assert_eq!((first.exit_code(), second.exit_code()), (9, 9));
}

#[test]
fn signals_and_exit_codes_are_passed_through() {
    let Some(bench) = Bench::new() else { return };
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)] {
        let output = bench.run(&words(&with(&[])), &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        bench.is_clean();
    }
    let mut agent = bench.start(&words(&with(&[])), &bench.program());
    bench.enclave_when("it works", |enclave| enclave["report"]["threads"].as_u64() >= Some(6));
    agent.signal(Signal::TERM);
    assert_eq!(agent.exit_code(), 143);
    bench.is_clean();
}

#[test]
fn forks_and_execs_stay_in_the_enclave() {
    let Some(bench) = Bench::new() else { return };
    let script = "(exec sleep 1000) & echo $! ; exec sh -c 'while ! [ -e $AGENT_TEST_END ]; do sleep 0.05; done; \
        kill %1 2>/dev/null; kill $0' $!";
    let program = ["sh", "-c", script].map(String::from);
    let mut agent = bench.start(&words(&with(&[])), &program);
    let enclave = bench
        .enclave_when("all are in", |enclave| enclave["report"]["threads"].as_u64() >= Some(2));
    let first = threads(&enclave["guardian"]["pid"]);
    assert!(first.iter().all(|thread| thread.cpus == cpu()), "{first:?}");
    bench.end();
    agent.exit_code();
    bench.is_clean();
}

#[test]
fn invalid_options_are_refused_with_an_explanation() {
    let Some(bench) = Bench::new() else { return };
    let list = cpu();
    let cpus = ["--cpus", list.as_str()];
    for (arguments, program, code, said) in [
        (vec!["run", "--policy", "shinjuk"], "true", 2, "did you mean"),
        (
            vec!["run", "--policy", "fifo", "--cpus", "4000"],
            "true",
            2,
            "this machine has no CPU 4000",
        ),
        (vec!["run", "--policy", "fifo", "--cpus", "9-2"], "true", 2, "is not a list of CPUs"),
        (vec!["run", "--policy", "fifo", "--class", "nonsense"], "true", 2, "is not a class rule"),
        (
            vec!["run", "--policy", "fifo", "--name", "a b"],
            "true",
            2,
            "is not a valid enclave name",
        ),
        (vec!["run", "--policy", "fifo", "--spin"], "true", 2, "takes one of the enclave's CPUs"),
        (
            vec!["run", "--policy", "fifo"],
            "no-such-program",
            127,
            "there is no program `no-such-program`",
        ),
        (vec!["run", "--policy", "fifo"], "/etc/passwd", 126, "cannot be started"),
    ] {
        let mut all = arguments.clone();
        if !all.contains(&"--cpus") {
            all.extend(cpus);
        }
        let output = bench.run(&all, &[program]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{arguments:?}: {}", text(&output));
        bench.is_clean();
    }
    let unknown = bench.run(&["stop", "unknown"], &[]);
    assert!(text(&unknown).contains("there is no enclave `unknown`"));
}

#[test]
fn without_sched_ext_auto_falls_back_and_says_so() {
    let Some(bench) = Bench::new() else { return };
    if std::path::Path::new("/sys/kernel/sched_ext").exists() {
        eprintln!("skipped: this kernel has sched_ext");
        return;
    }
    let list = cpu();
    let scx =
        bench.run(&["run", "--policy", "fifo", "--cpus", &list, "--backend", "scx"], &["true"]);
    assert_eq!(scx.status.code(), Some(1));
    assert!(text(&scx).contains("this kernel has no sched_ext"), "{}", text(&scx));
    let auto = bench.run(&["run", "--policy", "fifo", "--cpus", &list], &["true"]);
    assert_eq!(auto.status.code(), Some(0), "{}", text(&auto));
    assert!(
        text(&auto)
            .lines()
            .any(|line| line.contains("using the rt backend, because scx does not work here"))
    );
}

#[test]
fn without_privileges_the_error_says_what_is_missing() {
    let Some(_bench) = Bench::new() else { return };
    let place = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg(env!("CARGO_BIN_EXE_heddle"));
    command
        .args(["agent", "run", "--policy", "fifo", "--", "true"])
        .env("HEDDLE_RUN", place.path());
    let Ok(output) = command.output() else {
        eprintln!("skipped: no setpriv");
        return;
    };
    let said = text(&output);
    if said.contains("Permission denied") && said.contains("setpriv") {
        eprintln!("skipped: an unprivileged user cannot read the built command");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CAP_") && said.contains("no backend works here"), "{said}");
}

#[test]
fn escapes_in_a_command_line_do_not_reach_the_terminal() {
    let Some(bench) = Bench::new() else { return };
    let script = "while ! [ -e $AGENT_TEST_END ]; do sleep 0.05; done";
    let program =
        ["sh", "-c", script, "\x1b[2J\x1b]0;root\x07\nstate all is well"].map(String::from);
    let mut agent = bench.start(&words(&with(&["--name", "shown"])), &program);
    bench.enclave_when("it is there", |enclave| enclave["guardian"]["pid"].is_number());
    let shown = bench.run(&["status", "shown"], &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("\\u{1b}[2J\\u{1b}]0;root\\u{7}\\nstate all is well"), "{shown}");
    assert!(!shown.contains('\x1b') && !shown.contains('\x07'), "{shown:?}");
    bench.end();
    assert_eq!(agent.exit_code(), 0);
    bench.is_clean();
}
