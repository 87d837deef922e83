//! `heddle bench share` as a process: each part once and briefly. Figures of such short runs mean nothing, so none is
//! checked. What cannot run here (one CPU, no privilege, no compiler, no preloaded library) is visibly skipped.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "share"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the rows of a part, and what the command says. On a busy machine a run may be invalid (exit code 3).
fn rows(part: &str, systems: &str) -> (Vec<Value>, String) {
    let output = bench(&["--quick", "--json", "--only", part, "--systems", systems]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (results["rows"].as_array().unwrap().clone(), said)
}

#[track_caller]
fn has(rows: &[Value], system: &str, case: &str, metric: &str) {
    let same =
        |row: &&Value| row["system"] == system && row["case"] == case && row["metric"] == metric;
    let row = rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"));
    // A program that failed has a row without runs; a busy machine makes rows with runs invalid.
    assert!(row["runs"].as_u64().unwrap() > 0, "{row}");
}

fn has_two_cpus() -> bool {
    let enough = heddle_sys::thread::affinity().unwrap().len() > 1;
    if !enough {
        eprintln!("SKIPPED: bench share: it takes two CPUs");
    }
    enough
}

fn can_be_realtime() -> bool {
    use heddle_sys::scheduling::{Scheduling, set};
    let can = std::thread::spawn(|| set(0, Scheduling::fifo(1)).is_ok()).join().unwrap();
    if !can {
        eprintln!("SKIPPED: bench share, real time: no CAP_SYS_NICE");
    }
    can
}

fn can_run_programs() -> bool {
    let compiler = Command::new("cc").arg("--version").output().is_ok();
    let library = Path::new(HEDDLE).with_file_name("libheddle_pthread.so").is_file();
    if !compiler || !library {
        eprintln!("SKIPPED: bench share, programs: no C compiler `cc` or no libheddle_pthread.so");
    }
    compiler && library
}

#[test]
fn switches_between_processes_have_a_cost() {
    if !has_two_cpus() {
        return;
    }
    let (rows, _) = rows("switch", "share-ordinary,futex,eventfd,pipe");
    for system in ["share-ordinary", "futex", "eventfd", "pipe"] {
        has(&rows, system, "switch", "ns_per_switch");
    }
    has(&rows, "share-ordinary", "switch", "broken_percent");
    has(&rows, "pipe", "switch", "of_futex");
}

/// The hand-over in real time never breaks the Single Binding Rule.
#[test]
fn switches_in_real_time_are_counted_and_none_is_broken() {
    if !has_two_cpus() || !can_be_realtime() {
        return;
    }
    let (rows, _) = rows("switch", "share-yield,share-futex,sched_yield");
    for system in ["share-yield", "share-futex"] {
        has(&rows, system, "switch", "ns_per_switch");
        let is_broken = |row: &&Value| row["system"] == system && row["metric"] == "broken";
        assert_eq!(rows.iter().find(is_broken).unwrap()["value"], 0.0, "{system}");
    }
    has(&rows, "sched_yield", "switch", "ns_per_switch");
}

#[test]
fn a_server_and_a_batch_program_share_a_cpu() {
    if !has_two_cpus() || !can_run_programs() || !can_be_realtime() {
        return;
    }
    let (rows, _) = rows("service", "alone,share,kernel,nice");
    for system in ["alone", "share", "kernel", "nice"] {
        has(&rows, system, "service", "p99");
    }
    for metric in ["p99_over_alone", "be_steps", "be_share", "of_left", "wait_longest"] {
        has(&rows, "share", "service", metric);
    }
    has(&rows, "nice", "service", "p99_over_share");
}

#[test]
fn rocksdb_shares_a_cpu_where_this_program_has_it() {
    if !has_two_cpus() || !can_run_programs() || !can_be_realtime() {
        return;
    }
    let (rows, said) = rows("rocksdb", "alone,share,kernel,nice,cgroup,idle,fifo");
    if !cfg!(feature = "rocksdb") {
        assert!(rows.is_empty() && said.contains("--features rocksdb"), "{said}");
        return;
    }
    for system in ["alone", "share", "kernel", "nice", "idle", "fifo"] {
        has(&rows, system, "rocksdb", "p99");
    }
    for metric in ["p99_over_alone", "be_steps", "be_share", "of_left", "wait_longest"] {
        has(&rows, "share", "rocksdb", metric);
    }
    has(&rows, "nice", "rocksdb", "p99_over_share");
}

#[test]
fn a_program_that_sleeps_wakes_up_beside_a_batch_program() {
    if !has_two_cpus() || !can_run_programs() || !can_be_realtime() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("share.html");
    let output =
        bench(&["--quick", "--only", "wake,memcached", "--report", report.to_str().unwrap()]);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.contains("Lateness of wake-ups"), "{html}");
}

#[test]
fn wrong_options_are_wrong_usage_and_the_known_ones_are_named() {
    for (words, says) in [
        (["--only", "macro"], "switch, service"),
        (["--systems", "cfs"], "idle, fifo"),
        (["--loads", "150"], "1 to 100"),
        (["--child", "{}"], "not a job"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{words:?}: {output:?}");
    }
}
