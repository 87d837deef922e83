//! Enclaves that get other CPUs while they live.

use crate::testbed::{Testbed, fine, is_alive, until};

fn has_two_cpus() -> bool {
    let has = std::path::Path::new("/sys/devices/system/cpu/cpu1").exists();
    if !has {
        eprintln!("skipped: this machine has one CPU");
    }
    has
}

const TWO_CPUS: &str = r#"{"do":"resize","cpus":[0,1]}"#;

#[test]
fn a_resize_replaces_the_agent_and_moves_cpus_between_enclaves() {
    if !has_two_cpus() {
        return;
    }
    let testbed = Testbed::new();
    let one = testbed.start_with("", "name=one", &["sleep", "1000"]);
    let old = testbed.record_when(|record| record["pid"].is_number());
    let answer = testbed.ask(TWO_CPUS);
    assert!(answer.contains(r#""answer":"resized","cpus":[0,1]"#), "{answer}");
    assert!(answer.contains(r#""moved":3,"outside":1"#), "{answer}");
    let new = testbed.record_when(|record| record["resizes"] == 1);
    assert_ne!(old["agent"], new["agent"]);
    assert_eq!((&new["cpus"], fine(&new["stage"])), (&serde_json::json!([0, 1]), "active"));
    until(|| !is_alive(old["agent"].as_u64().unwrap()));
    let log = testbed.log();
    assert_eq!(log, ["attached", "joined", "grown to 0-1", "left", "shrunk to 0-1", "attached"]);
    let again = testbed.ask(TWO_CPUS);
    assert!(again.contains(r#""gap_us":null"#), "{again}");
    assert_eq!(testbed.record_when(|_| true), new);

    let mut two = testbed.start_with("", "name=two;cpus=1", &["sleep", "1000"]);
    assert_eq!(two.exit_code(), 2);
    assert!(two.stderr().contains("CPU 1 belongs to the enclave `one` (CPUs 0-1)"));
    let answer = testbed.ask(r#"{"do":"resize","cpus":[0]}"#);
    assert!(answer.contains(r#""answer":"resized","cpus":[0]"#), "{answer}");
    let _two = testbed.start_with("", "name=two;cpus=1", &["sleep", "1000"]);
    until(|| testbed.enclaves().join("two/control").exists());
    let refused = testbed.ask_enclave("one", TWO_CPUS, "");
    assert!(refused.contains("CPU 1 belongs to the enclave `two`"), "{refused}");
    drop(one);
}

#[test]
fn a_resize_that_is_refused_changes_nothing() {
    let testbed = Testbed::new();
    let _guardian = testbed.start("", &["sleep", "1000"]);
    let before = testbed.record_when(|record| record["pid"].is_number());
    for (cpus, text) in [
        ("[]", "an enclave needs at least one CPU"),
        ("[0,4000]", "this machine has no CPU 4000; it has 0"),
        ("[-1]", "cannot parse the request"),
    ] {
        let refused = testbed.ask(&format!(r#"{{"do":"resize","cpus":{cpus}}}"#));
        assert!(refused.contains(r#""usage":true"#) && refused.contains(text), "{refused}");
    }
    assert_eq!(testbed.record_when(|_| true), before);
    assert_eq!(testbed.log(), ["attached", "joined"]);
}

#[test]
fn a_resize_that_fails_leaves_the_old_agent_and_its_cpus_or_gives_back() {
    if !has_two_cpus() {
        return;
    }
    let testbed = Testbed::new();
    let _guardian = testbed.start("dies-on-two", &["sleep", "1000"]);
    let before = testbed.record_when(|record| record["pid"].is_number());
    let refused = testbed.ask(TWO_CPUS);
    assert!(refused.contains("exit code 7; the old agent goes on, on CPUs 0"), "{refused}");
    assert_eq!(testbed.record_when(|_| true), before);
    assert!(is_alive(before["agent"].as_u64().unwrap()));
    assert_eq!(testbed.log(), ["attached", "joined", "grown to 0-1", "shrunk to 0"]);

    let testbed = Testbed::new();
    let _guardian = testbed.start("fails-on-two", &["sleep", "1000"]);
    testbed.record_when(|record| record["pid"].is_number());
    let refused = testbed.ask(TWO_CPUS);
    assert!(refused.contains("the threads were given back"), "{refused}");
    testbed.record_when(|record| record["stage"] == "given-back");
    assert!(testbed.log().contains(&"back".into()));
}
