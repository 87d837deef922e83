//! `heddle bench net` as a process, briefly. Figures of such short runs mean nothing, so none is checked.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["bench", "net"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

/// The rows of a quick run; `None` if this machine cannot make namespaces.
fn rows(words: &[&str]) -> Option<Vec<Value>> {
    let output = bench(&[&["--quick", "--json"], words].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("needs root") {
        eprintln!("skipped: {said}");
        return None;
    }
    // 3 where other programs are busy: the runs are invalid then, and the rows are there all the same.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    assert!(!said.contains("skipped"), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(results["rows"].as_array().unwrap().clone())
}

fn value(rows: &[Value], system: &str, case: &str, metric: &str) -> f64 {
    let same =
        |row: &&Value| row["system"] == system && row["case"] == case && row["metric"] == metric;
    let row = rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"));
    row["value"].as_f64().unwrap()
}

#[test]
fn requests_of_every_system_are_answered() {
    let Some(rows) = rows(&["--only", "udp,tcp", "--connections", "1,20"]) else { return };
    for case in ["udp-spin", "udp-sleep", "udp-32", "tcp-1", "tcp-20"] {
        for system in ["plain", "kernel", "xdp"] {
            for metric in ["p50", "rate", "cpu"] {
                assert!(value(&rows, system, case, metric) > 0.0, "{system} {case} {metric}");
            }
        }
    }
    assert!(value(&rows, "xdp-both", "udp-spin", "p50_of_plain") > 0.0);
    let by_kernel = |row: &&Value| row["note"].as_str().unwrap().contains("the kernel received");
    assert_eq!(rows.iter().find(by_kernel), None, "lanes serve");
}

#[test]
fn streams_flow_with_and_without_losses() {
    let Some(rows) = rows(&["--only", "stream,loss"]) else { return };
    assert!(value(&rows, "xdp", "loss-cubic-stream-from-server", "goodput_of_kernel") > 0.0);
    for network in ["", "offloads-", "loss-"] {
        for direction in ["to", "from"] {
            let case = format!("{network}stream-{direction}-server");
            for system in ["plain", "kernel", "xdp"] {
                assert!(value(&rows, system, &case, "goodput") > 0.0, "{system} {case}");
            }
        }
    }
}

#[test]
fn what_needs_no_peer_is_measured() {
    let Some(rows) = rows(&["--only", "stack,idle"]) else { return };
    assert!(value(&rows, "heddle-tcp", "stack-10000", "cost") > 0.0);
    assert_eq!(value(&rows, "xdp", "idle", "preemptions"), 0.0);
    assert!(value(&rows, "xdp", "idle", "bytes") > 0.0);
}

#[test]
fn gets_beside_scans_are_served_on_both_networks() {
    let Some(rows) = rows(&["--only", "tail"]) else { return };
    for net in ["kernel", "xdp"] {
        let system = format!("heddle two-queue:quantum=100us net={net}");
        assert!(value(&rows, &system, "get", "p99.9") > 0.0, "{system}");
    }
}

#[test]
fn impossible_measurements_are_refused_with_an_explanation() {
    for (words, why) in [
        (["--connections", "0"], "0 is not in 1..=10000"),
        (["--only", "dpdk"], "there are udp, tcp, stack, tail, stream, loss, idle"),
        (["--child", "{}"], "not a job of the runner"),
    ] {
        let output = bench(&words);
        assert_ne!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    }
}
