//! `heddle agent` over the kernel's fair scheduler: the real command with a real program. Requires root.

#[allow(dead_code, reason = "shared with the tests on the real-time backend")]
#[path = "agent/bench.rs"]
mod bench;
#[path = "agent/program.rs"]
mod program;
#[allow(dead_code, reason = "rooms are for servers, too")]
#[path = "steer/room.rs"]
mod room;

use bench::{Bench, Running, all_progress, are_ordinary, cpu, kill, other_cpu, threads, until};
use heddle_agent::guardian::Kind;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;

/// Not a test: the program that the tests schedule.
#[test]
fn program() {
    program::main();
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Scheduling policies, by number.
const OTHER: i32 = 0;
const IDLE: i32 = 5;

/// Returns the nice values of a process's threads.
fn nices(pid: &Value) -> Vec<i32> {
    let nice = |tid| heddle_sys::scheduling::nice(tid).ok();
    threads(pid).into_iter().filter_map(|thread| nice(thread.tid)).collect()
}

/// Whether all threads are as without Heddle: like this one.
fn are_as_before(pid: &Value) -> bool {
    let mine = heddle_sys::scheduling::nice(0).expect("this thread");
    are_ordinary(pid) && nices(pid).iter().all(|nice| *nice == mine)
}

/// Starts `program` in the enclave `fair`, with more options.
fn start(bench: &Bench, more: &[&str], program: &[String]) -> Running {
    let cpu = cpu();
    let options =
        ["run", "--policy", "priority", "--backend", "fair", "--cpus", &cpu, "--name", "fair"];
    bench.start(&[&options[..], more].concat(), program)
}

/// Starts the program in an enclave, and waits until the agent has set its six threads.
fn scheduled(bench: &Bench, more: &[&str]) -> (Running, Value) {
    let agent = start(bench, more, &bench.program());
    let enclave = bench.enclave_when("all threads are set", |enclave| {
        let set = &enclave["report"]["fair"]["threads"];
        set["lc"].as_u64().unwrap_or(0) + set["be"].as_u64().unwrap_or(0) >= 6
    });
    (agent, enclave)
}

#[test]
fn threads_are_set_shown_and_restored() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    let (mut agent, enclave) = scheduled(&bench, &[]);
    let pid = &enclave["guardian"]["pid"];
    assert!(nices(pid).iter().all(|nice| *nice == -15));
    assert!(threads(pid).iter().all(|thread| thread.cpus == cpu()));
    all_progress(pid);
    let shown = bench.run(&["status", "fair"], &[]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let parts = ["fair backend, no deciding agent", "nice -15", "lc", "5 % of a CPU"];
    for part in parts {
        assert!(shown.contains(part), "{part} in {shown}");
    }

    let mut batch = bench.start(&["join", "fair", "--", "nice", "-n", "10"], &bench.program());
    // A thread is classed first and its state is known a little later. On a busy machine its best-effort threads are
    // raised for as long as they would get nothing.
    bench.enclave_when("it is in", |enclave| {
        let fair = &enclave["report"]["fair"];
        let is_set = fair["be_raised"] == true || enclave["states"]["idle"].as_u64() >= Some(6);
        is_set && fair["threads"]["be"].as_u64() >= Some(6)
    });

    let stopped = bench.run(&["stop", "fair"], &[]);
    assert!(stopped.status.success(), "{}", text(&stopped));
    until("all threads are as before", || are_as_before(pid));
    bench.end();
    assert_eq!((agent.exit_code(), batch.exit_code()), (9, 9));
    bench.is_clean();
}

#[test]
fn a_killed_agent_is_replaced_and_a_killed_guardian_is_undone() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    let (_agent, enclave) = scheduled(&bench, &[]);
    let pid = enclave["guardian"]["pid"].clone();
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    let next = bench.enclave_when("its successor watches", |enclave| {
        enclave["guardian"]["restarts"] == 1
            && enclave["guardian"]["stage"] == "active"
            && enclave["report"]["fair"]["threads"]["lc"].as_u64() >= Some(6)
    });
    assert!(nices(&pid).iter().all(|nice| *nice == -15));
    kill(&next["guardian"]["guardian"], Signal::KILL);
    until("its agent has restored all threads", || are_as_before(&pid));
    bench.end();
    until("it is gone", || threads(&pid).is_empty());
    until("nothing is left", || bench.status()["enclaves"] == serde_json::json!([]));
    bench.is_clean();
}

#[test]
fn a_guardian_and_an_agent_killed_together_are_cleaned_up_after() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    let (_agent, enclave) = scheduled(&bench, &["--be", "*"]);
    let pid = &enclave["guardian"]["pid"];
    assert!(threads(pid).iter().any(|thread| thread.policy == IDLE), "{:?}", threads(pid));
    kill(&enclave["guardian"]["agent"], Signal::STOP);
    kill(&enclave["guardian"]["guardian"], Signal::KILL);
    kill(&enclave["guardian"]["agent"], Signal::KILL);
    until("all threads are as before", || are_as_before(pid));
    assert!(threads(pid).iter().all(|thread| thread.policy == OTHER));
    all_progress(pid);
    until("nothing is left", || bench.status()["enclaves"] == serde_json::json!([]));
    bench.end();
    bench.is_clean();
}

#[test]
fn a_session_is_raised_only_while_its_server_is_in_the_enclave() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    let is_on = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    if is_on.is_ok_and(|text| text.trim() != "1") {
        eprintln!("skipped: autogroups are off");
        return;
    }
    let script =
        "echo $$ > $AGENT_TEST_END.pid; while ! [ -e $AGENT_TEST_END ]; do sleep 0.05; done";
    let mut server = bench.command(&[], &[]);
    server.env_remove("HEDDLE_RUN");
    let end = server.get_envs().find(|(key, _)| *key == "AGENT_TEST_END");
    let end = end.and_then(|(_, value)| value).expect("set").to_owned();
    let mut session = std::process::Command::new("setsid");
    session.args(["--wait", "sh", "-c", script]).env("AGENT_TEST_END", &end);
    let mut session = session.spawn().expect("setsid");
    let file = std::path::PathBuf::from(&end).with_extension("pid");
    let mut pid = String::new();
    until("it runs", || {
        pid = std::fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
        !pid.is_empty()
    });
    let group = || std::fs::read_to_string(format!("/proc/{pid}/autogroup")).expect("a group");
    if heddle_sys::processes::cpu_cgroup(pid.parse().expect("a number")).is_some() {
        eprintln!("skipped: a cgroup has its own weight here");
    } else {
        assert!(group().trim().ends_with("nice 0"), "{}", group());
        let cpu = cpu();
        let options = ["run", "--policy", "priority", "--backend", "fair", "--cpus", &cpu];
        let mut agent = bench.start(&[&options[..], &["--pid", &pid]].concat(), &[]);
        until("it is raised", || group().trim().ends_with("nice -15"));
        let name = group().split_whitespace().next().expect("a name")[1..].replace('-', " ");
        bench.enclave_when("that is reported", |enclave| {
            enclave["report"]["fair"]["groups"] == serde_json::json!([name])
        });
        heddle_sys::scheduling::set_nice(pid.parse().expect("a number"), 10).expect("root");
        until("its session is as it was", || group().trim().ends_with("nice 0"));
        bench.enclave_when("that is reported, too", |enclave| {
            enclave["report"]["fair"]["groups"] == serde_json::json!([])
        });
        agent.signal(Signal::TERM);
        assert_eq!(agent.exit_code(), 0);
        assert!(group().trim().ends_with("nice 0"), "{}", group());
        bench.is_clean();
    }
    bench.end();
    session.wait().expect("a child");
}

/// Returns the daemon that the program has started.
fn daemon_of(bench: &Bench) -> Value {
    let file = bench.file("end.daemon");
    let mut daemon = Value::Null;
    until("it is there", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        daemon = text.trim().parse().unwrap_or_default();
        daemon.is_number()
    });
    daemon
}

/// Stops the enclave, and ends the daemon once it is as before.
#[track_caller]
fn is_restored_by_stop(bench: &Bench, daemon: &Value) {
    let stopped = bench.run(&["stop", "fair"], &[]);
    assert!(stopped.status.success(), "{}", text(&stopped));
    until("it is as before", || are_as_before(daemon));
    kill(daemon, Signal::KILL);
    bench.end();
}

#[test]
fn a_daemon_that_leaves_its_parents_is_set_and_restored() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    let script = "(sleep 1000 & echo $! > $AGENT_TEST_END.daemon); while ! [ -e $AGENT_TEST_END ]; do sleep 0.05; done";
    let _agent = start(&bench, &[], &["sh", "-c", script].map(String::from));
    let daemon = daemon_of(&bench);
    until("it is set", || nices(&daemon) == [-15]);
    is_restored_by_stop(&bench, &daemon);
}

/// The agent is stopped before the daemon begins, so only the guardian can find it.
#[test]
fn a_daemon_that_the_agent_never_saw_is_restored() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    let script = "\
        while ! [ -e $AGENT_TEST_END.go ]; do sleep 0.05; done; \
        (sleep 1000 & echo $! > $AGENT_TEST_END.daemon); \
        while ! [ -e $AGENT_TEST_END ]; do sleep 0.05; done";
    let _agent = start(&bench, &[], &["sh", "-c", script].map(String::from));
    let enclave = bench.enclave_when("the program is set", |enclave| {
        enclave["report"]["fair"]["threads"]["lc"].as_u64().unwrap_or(0) >= 1
    });
    kill(&enclave["guardian"]["agent"], Signal::STOP);
    std::fs::write(bench.file("end.go"), "").expect("a file");
    let daemon = daemon_of(&bench);
    until("it has inherited the level", || nices(&daemon) == [-15]);
    is_restored_by_stop(&bench, &daemon);
}

#[test]
fn auto_uses_fair_for_policies_it_can_express_and_says_so() {
    let Some(bench) = Bench::on(Kind::Fair) else { return };
    if std::path::Path::new("/sys/kernel/sched_ext").exists() {
        eprintln!("skipped: this kernel has sched_ext");
        return;
    }
    let cpu = cpu();
    let run = |more: &[&str]| bench.run(&[&["run", "--cpus", &cpu], more].concat(), &["true"]);
    let auto = run(&["--policy", "priority"]);
    assert_eq!(auto.status.code(), Some(0), "{}", text(&auto));
    let said = text(&auto);
    assert!(said.contains("using the fair backend, because scx does not work here"), "{said}");
    for (options, why) in [
        (&["--policy", "sjf"][..], "the order in which `sjf` runs threads"),
        (&["--policy", "priority", "--agents", "local"], "--agents local needs an agent"),
    ] {
        let refused = run(&[options, &["--backend", "fair"]].concat());
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused).contains(why), "{}", text(&refused));
    }
    bench.is_clean();
}

#[test]
fn other_cpus_are_refused_and_the_enclave_goes_on() {
    let (Some(bench), Some(other)) = (Bench::on(Kind::Fair), other_cpu()) else { return };
    let (mut agent, enclave) = scheduled(&bench, &[]);
    let refused = bench.run(&["resize", "fair", &other], &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    let said = text(&refused);
    assert!(
        said.contains("cannot change the CPUs of a running enclave") && said.contains("--cpus"),
        "{said}"
    );
    let now = bench.enclave_when("it goes on", |enclave| enclave["guardian"]["stage"] == "active");
    assert_eq!(now["guardian"], enclave["guardian"]);
    bench.end();
    assert_eq!(agent.exit_code(), 9);
    bench.is_clean();
}
