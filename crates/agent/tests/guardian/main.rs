//! The guardian with an agent process and a backend that do nothing: its reactions to the death of each process. No
//! privileges, no BPF.
//!
//! A guardian catches signals and collects the children of its process, so each runs in a process of its own: this
//! binary again, with `GUARDIAN_TEST` set.

mod backend;
mod other_users;
mod resize;
mod testbed;

use rustix::process::Signal;
use testbed::{Testbed, fine, is_alive, until};

/// Not a test: the guardian that the tests start.
#[test]
fn guardian() {
    if std::env::var_os("GUARDIAN_TEST").is_some() {
        std::process::exit(backend::guardian());
    }
}

/// Not a test: the cleaner process of those guardians.
#[test]
fn cleaner() {
    backend::cleaner();
}

#[test]
fn a_pick_next_is_refused_where_nothing_is_offered() {
    for (settings, why) in [
        ("", "--pick-next needs --backend scx: over rt no CPU takes threads by itself"),
        ("policy=cfs;backend=scx", "the policy cfs does not publish which threads come next"),
        ("policy=core-edf;backend=scx", "the policy core-edf does not publish"),
        ("agents=local;backend=scx", "--agents local offers no threads to CPUs"),
    ] {
        let testbed = Testbed::new();
        let mut guardian = testbed.start_with("", &format!("pick_next=it;{settings}"), &[]);
        assert_eq!(guardian.exit_code(), 2, "{settings}");
        assert!(guardian.stderr().contains(why), "{settings}: {}", guardian.stderr());
        testbed.is_clean();
    }
}

#[test]
fn a_programs_exit_code_is_passed_on_and_nothing_is_left() {
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        let testbed = Testbed::new();
        let mut guardian = testbed.start("", &["sh", "-c", script]);
        assert_eq!(guardian.exit_code(), code, "{script}");
        let log = testbed.log();
        assert_eq!(log[0], "attached", "the agent comes first: {log:?}");
        assert_eq!(log[1], "joined", "{log:?}");
        assert!(log.contains(&"back".into()), "{log:?}");
        testbed.is_clean();
    }
}

#[test]
fn a_program_runs_only_when_its_thread_is_in_the_enclave() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", "echo ran >> $GUARDIAN_TEST_LOG"]);
    assert_eq!(guardian.exit_code(), 0);
    assert_eq!(&testbed.log()[..3], ["attached", "joined", "ran"]);
}

#[test]
fn signals_are_passed_on_to_the_program() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::WINCH, "WINCH"),
    ] {
        let testbed = Testbed::new();
        let script = format!(
            "trap 'echo got >> $GUARDIAN_TEST_LOG; exit 5' {name}; echo up >> $GUARDIAN_TEST_LOG; \
             while :; do sleep 0.01; done"
        );
        let mut guardian = testbed.start("", &["sh", "-c", &script]);
        until(|| testbed.log().contains(&"up".into()));
        guardian.signal(signal);
        assert_eq!(guardian.exit_code(), 5, "{name}");
        assert!(testbed.log().contains(&"got".into()));
        testbed.is_clean();
    }
}

#[test]
fn an_agent_that_dies_gives_the_threads_back_and_the_program_goes_on() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", ". $GUARDIAN_TEST_WAIT; exit 9"]);
    let agent =
        testbed.record_when(|record| record["stage"] == "active" && record["pid"].is_number());
    testbed.kill(&agent["agent"], Signal::KILL);
    let record = testbed.record_when(|record| record["stage"] == "given-back");
    assert_eq!(record["reason"], "it was ended by signal 9");
    assert!(testbed.log().contains(&"back".into()));
    assert!(is_alive(record["pid"].as_u64().unwrap()));
    let refused = testbed.ask(r#"{"do":"join","pid":1}"#);
    assert!(refused.contains("has no agent any more"), "{refused}");
    testbed.end();
    assert_eq!(guardian.exit_code(), 9);
    let said = guardian.stderr();
    assert!(
        said.contains("is gone (it was ended by signal 9)")
            && said.contains("goes on without a policy"),
        "{said}"
    );
    testbed.is_clean();
}

#[test]
fn the_backend_is_notified_which_cpus_are_online() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", ". $GUARDIAN_TEST_WAIT; exit 9"]);
    let now = || std::fs::read_to_string("/sys/devices/system/cpu/online").expect("a list");
    until(|| testbed.online() == now().trim());
    testbed.end();
    assert_eq!(guardian.exit_code(), 9);
}

#[test]
fn an_agent_that_dies_is_replaced_a_limited_number_of_times() {
    let testbed = Testbed::new();
    let mut guardian =
        testbed.start_with("", "restarts=2", &["sh", "-c", ". $GUARDIAN_TEST_WAIT; exit 9"]);
    let mut record =
        testbed.record_when(|record| record["stage"] == "active" && record["pid"].is_number());
    for restarts in 1..=2 {
        testbed.kill(&record["agent"], Signal::KILL);
        let next = testbed
            .record_when(|record| record["restarts"] == restarts && record["stage"] == "active");
        assert_ne!(next["agent"], record["agent"]);
        assert_eq!(next["last_death"], "it was ended by signal 9");
        assert!(is_alive(next["pid"].as_u64().unwrap()));
        record = next;
    }
    let log = testbed.log();
    let count = |what: &str| log.iter().filter(|line| *line == what).count();
    assert_eq!(count("attached"), 3, "{log:?}");
    assert!(count("joined") >= 3, "its program comes in again each time: {log:?}");

    testbed.kill(&record["agent"], Signal::KILL);
    let given = testbed.record_when(|record| record["stage"] == "given-back");
    let why = fine(&given["reason"]);
    assert_eq!(why, "it was ended by signal 9; it has died more than 2 times within a minute");
    testbed.end();
    assert_eq!(guardian.exit_code(), 9);
    let said = guardian.stderr();
    assert!(said.contains("restart 2 of at most 2 within a minute"), "{said}");
    testbed.is_clean();
}

#[test]
fn a_backend_that_ends_by_an_error_is_made_anew_but_not_one_ended_by_hand() {
    let testbed = Testbed::new();
    let program = ["sh", "-c", ". $GUARDIAN_TEST_WAIT"];
    let mut guardian = testbed.start_with("", "restarts=5", &program);
    testbed.record_when(|record| record["stage"] == "active" && record["pid"].is_number());
    testbed.end_backend("the kernel ended it: runnable task stall");
    let next = testbed.record_when(|record| record["restarts"] == 1 && record["stage"] == "active");
    assert_eq!(next["last_death"], "the kernel ended it: runnable task stall");
    assert!(testbed.log().contains(&"back".into()));

    testbed.end_backend("the kernel ended it: disabled by sysrq-S");
    let given = testbed.record_when(|record| record["stage"] == "given-back");
    assert_eq!(given["reason"], "the kernel ended it: disabled by sysrq-S");
    assert_eq!(given["restarts"], 1);
    until(|| !is_alive(next["agent"].as_u64().unwrap()));
    testbed.end();
    assert_eq!(guardian.exit_code(), 0);
    let said = guardian.stderr();
    assert!(said.contains("is gone (the kernel ended it: runnable task stall)"), "{said}");
    testbed.is_clean();
}

#[test]
fn an_agent_that_fails_or_hangs_is_not_replaced() {
    let testbed = Testbed::new();
    let program = ["sh", "-c", ". $GUARDIAN_TEST_WAIT"];
    let mut guardian = testbed.start_with("", "restarts=5", &program);
    let record = testbed.record_when(|record| record["pid"].is_number());
    testbed.kill(&record["agent"], Signal::STOP);
    testbed.orphan();
    let given = testbed.record_when(|record| record["stage"] == "given-back");
    assert_eq!(given["restarts"], 0, "its policy would do the same again");
    testbed.end();
    assert_eq!(guardian.exit_code(), 0);
}

#[test]
fn an_agent_that_cannot_start_leaves_no_enclave_and_starts_no_program() {
    for (fault, text) in [
        ("refuses", "no such machine"),
        ("dies-early", "it ended with exit code 3"),
        ("babbles", "it said `Hello`"),
    ] {
        let testbed = Testbed::new();
        let mut guardian = testbed.start(fault, &["sh", "-c", "echo ran >> $GUARDIAN_TEST_LOG"]);
        assert_eq!(guardian.exit_code(), 1);
        let said = guardian.stderr();
        assert!(said.contains(text), "{said}");
        assert!(!testbed.log().contains(&"ran".into()));
        testbed.is_clean();
    }
}

#[test]
fn invalid_options_are_refused_before_anything_is_made() {
    for (program, settings, text) in [
        ("no-such-program", "", "there is no program `no-such-program`"),
        ("/etc/passwd", "", "cannot be started"),
        ("sh", "policy=shinjuk", "shinjuku"),
        ("sh", "cpus=4000", "this machine has no CPU 4000"),
        ("sh", "name=a/b", "is not a valid enclave name"),
    ] {
        let testbed = Testbed::new();
        let mut guardian = testbed.start_with("", settings, &[program]);
        assert_eq!(guardian.exit_code(), 2, "{program} {settings}");
        let said = guardian.stderr();
        assert!(said.contains(text), "{said}");
        assert!(testbed.log().is_empty());
        testbed.is_clean();
    }
}

#[test]
fn a_name_and_a_cpu_belong_to_one_enclave() {
    let testbed = Testbed::new();
    let first = testbed.start_with("", "name=one", &["sleep", "1000"]);
    testbed.record_when(|record| record["pid"].is_number());
    for (settings, text) in [
        ("name=one", "CPU 0 belongs to the enclave `one`"),
        ("name=two", "CPU 0 belongs to the enclave `one`"),
    ] {
        let mut second = testbed.start_with("", settings, &["sh", "-c", "exit 0"]);
        assert_eq!(second.exit_code(), 2);
        let said = second.stderr();
        assert!(said.contains(text), "{said}");
    }
    drop(first);
}

#[test]
fn a_daemon_that_leaves_its_parent_is_waited_for() {
    let testbed = Testbed::new();
    let script = "setsid sh -c '. $GUARDIAN_TEST_WAIT; \
                  echo daemon >> $GUARDIAN_TEST_LOG' & exit 4";
    let mut guardian = testbed.start("", &["sh", "-c", script]);
    until(|| guardian.stderr().contains("1 of its processes have not"));
    testbed.end();
    assert_eq!(guardian.exit_code(), 4, "of the first process");
    assert!(testbed.log().contains(&"daemon".into()));
    testbed.is_clean();
}

#[test]
fn guardian_and_agent_that_are_killed_are_cleaned_up_after_at_once() {
    let testbed = Testbed::new();
    let script = "echo program >>$GUARDIAN_TEST_LOG; . $GUARDIAN_TEST_WAIT";
    let mut guardian = testbed.start("", &["sh", "-c", script]);
    let record = testbed.record_when(|record| record["pid"].is_number());
    // Until then it is stopped, and only its guardian would continue it.
    until(|| testbed.log().contains(&"program".into()));
    // Neither it nor its guardian can undo anything, and no command is run.
    testbed.kill(&record["agent"], Signal::STOP);
    guardian.signal(Signal::KILL);
    testbed.kill(&record["agent"], Signal::KILL);
    assert_eq!(guardian.exit_code(), 137);
    until(|| testbed.log().contains(&"undone".into()));
    until(|| !testbed.enclaves().join(fine(&record["name"])).exists());
    assert!(is_alive(record["pid"].as_u64().unwrap()), "the program goes on");
    testbed.end();
    until(|| !is_alive(record["pid"].as_u64().unwrap()));
}

#[test]
fn the_next_command_removes_the_remains_of_three_killed_processes() {
    let testbed = Testbed::new();
    let script = "echo program >>$GUARDIAN_TEST_LOG; \
                  . $GUARDIAN_TEST_WAIT";
    let mut guardian = testbed.start_with("", "cleaner=dead", &["sh", "-c", script]);
    let record = testbed.record_when(|record| record["pid"].is_number());
    until(|| testbed.log().contains(&"program".into()));
    guardian.signal(Signal::KILL);
    assert_eq!(guardian.exit_code(), 137);
    until(|| testbed.log().contains(&"guardian gone".into()));
    assert!(is_alive(record["pid"].as_u64().unwrap()), "the program goes on");
    let mut next = testbed.start("", &["sh", "-c", "exit 0"]);
    assert_eq!(next.exit_code(), 0);
    assert!(next.stderr().contains("had died: removed what it left"), "{}", next.stderr());
    assert!(testbed.log().contains(&"undone".into()));
    testbed.is_clean();
    testbed.end();
    until(|| !is_alive(record["pid"].as_u64().unwrap()));
}

#[test]
fn an_upgrade_replaces_the_agent() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", ". $GUARDIAN_TEST_WAIT"]);
    let old = testbed.record_when(|record| record["pid"].is_number());
    let answer = testbed.ask(r#"{"do":"upgrade","policy":"round-robin:quantum=2ms"}"#);
    assert!(answer.contains(r#""answer":"upgraded""#), "{answer}");
    let new = testbed.record_when(|record| record["upgrades"] == 1);
    assert_ne!(old["agent"], new["agent"]);
    assert_eq!(
        (&new["policy"], &new["stage"]),
        (&"round-robin:quantum=2ms".into(), &"active".into())
    );
    until(|| !is_alive(old["agent"].as_u64().unwrap()));
    let log = testbed.log();
    assert!(!log.contains(&"back".into()), "no thread was given back: {log:?}");
    assert_eq!(log.iter().filter(|line| *line == "left").count(), 1);
    testbed.end();
    assert_eq!(guardian.exit_code(), 0);
    testbed.is_clean();
}

#[test]
fn an_upgrade_that_fails_leaves_the_old_agent_or_gives_back() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", ". $GUARDIAN_TEST_WAIT"]);
    let old = testbed.record_when(|record| record["pid"].is_number());
    for (policy, text) in [
        ("round-robbin", "round-robin"),
        ("round-robin:quantum=3ms", "it ended with exit code 7; the old agent goes on"),
    ] {
        let answer = testbed.ask(&format!(r#"{{"do":"upgrade","policy":"{policy}"}}"#));
        assert!(answer.contains("refused") && answer.contains(text), "{answer}");
        assert!(is_alive(old["agent"].as_u64().unwrap()));
        assert!(!testbed.log().contains(&"left".into()));
    }
    let answer = testbed.ask(r#"{"do":"upgrade","policy":"round-robin:quantum=4ms"}"#);
    assert!(
        answer.contains("the threads were given back") && answer.contains("attaching is refused"),
        "{answer}"
    );
    testbed.record_when(|record| record["stage"] == "given-back");
    assert!(testbed.log().contains(&"back".into()));
    testbed.end();
    assert_eq!(guardian.exit_code(), 0);
    testbed.is_clean();
}

#[test]
fn an_agent_that_hangs_loses_its_threads() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", ". $GUARDIAN_TEST_WAIT"]);
    let record = testbed.record_when(|record| record["pid"].is_number());
    testbed.kill(&record["agent"], Signal::STOP);
    testbed.orphan();
    let given = testbed.record_when(|record| record["stage"] == "given-back");
    assert!(fine(&given["reason"]).contains("could run waited for longer than"), "{given}");
    until(|| !is_alive(record["agent"].as_u64().unwrap()));
    testbed.end();
    assert_eq!(guardian.exit_code(), 0);
}

#[test]
fn a_stopped_enclave_lets_its_program_go_on() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &["sh", "-c", ". $GUARDIAN_TEST_WAIT; exit 6"]);
    testbed.record_when(|record| record["pid"].is_number());
    for (wrong, text) in [
        ("{}", "cannot parse the request"),
        (r#"{"do":"join","pid":4000000}"#, "there is no process 4000000"),
    ] {
        assert!(testbed.ask(wrong).contains(text));
    }
    assert_eq!(testbed.ask(r#"{"do":"stop"}"#), "{\"answer\":\"stopped\",\"threads\":1}\n");
    testbed.end();
    assert_eq!(guardian.exit_code(), 6);
    testbed.is_clean();
}

#[test]
fn an_empty_enclave_ends_by_a_signal() {
    let testbed = Testbed::new();
    let mut guardian = testbed.start("", &[]);
    testbed.record_when(|record| record["stage"] == "active");
    let me = std::process::id();
    until(|| {
        testbed.ask(&format!(r#"{{"do":"join","pid":{me}}}"#)).contains(r#""answer":"joined""#)
    });
    guardian.signal(Signal::TERM);
    assert_eq!(guardian.exit_code(), 0);
    assert!(testbed.log().contains(&"back".into()));
    testbed.is_clean();
}
