//! `heddle bench net` as a process, briefly. Figures of such short runs mean nothing, so none is checked.

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// A bench keeps both CPUs busy: beside another it would leave runs out as disturbed.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn bench(words: &[&str]) -> Output {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["bench", "net"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

/// What a quick run has measured.
struct Rows {
    rows: Vec<Value>,
    /// Other programs were busy.
    is_disturbed: bool,
}

/// The rows of a quick run; `None` if this machine cannot make namespaces.
fn rows(words: &[&str]) -> Option<Rows> {
    let output = bench(&[&["--quick", "--json"], words].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("needs root") {
        eprintln!("skipped: {said}");
        return None;
    }
    // 3 where other programs are busy: runs are invalid then, and left out.
    let is_disturbed = output.status.code() == Some(3);
    assert!(output.status.success() || is_disturbed, "{output:?}");
    assert!(!said.contains("skipped"), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(Rows { rows: results["rows"].as_array().unwrap().clone(), is_disturbed })
}

/// A metric of a system; `None` if others kept the machine busy and it was left out.
fn value(of: &Rows, system: &str, case: &str, metric: &str) -> Option<f64> {
    let same =
        |row: &&Value| row["system"] == system && row["case"] == case && row["metric"] == metric;
    let row = of.rows.iter().find(same);
    assert!(row.is_some() || of.is_disturbed, "no {system} {case} {metric}");
    row.map(|row| row["value"].as_f64().unwrap())
}

fn is_positive(of: &Rows, system: &str, case: &str, metric: &str) {
    let value = value(of, system, case, metric);
    assert!(value.is_none_or(|value| value > 0.0), "{system} {case} {metric}: {value:?}");
}

#[test]
fn requests_of_every_system_are_answered() {
    let Some(rows) = rows(&["--only", "udp,tcp", "--connections", "1,20"]) else { return };
    for case in ["udp-spin", "udp-sleep", "udp-32", "tcp-1", "tcp-20"] {
        for system in ["plain", "kernel", "xdp"] {
            for metric in ["p50", "rate", "cpu"] {
                is_positive(&rows, system, case, metric);
            }
        }
    }
    is_positive(&rows, "xdp-both", "udp-spin", "p50_of_plain");
    let by_kernel = |row: &&Value| row["note"].as_str().unwrap().contains("the kernel received");
    assert_eq!(rows.rows.iter().find(by_kernel), None, "lanes serve");
}

#[test]
fn streams_flow_with_and_without_losses() {
    let Some(rows) = rows(&["--only", "stream,loss"]) else { return };
    is_positive(&rows, "xdp", "loss-cubic-stream-from-server", "goodput_of_kernel");
    for network in ["", "offloads-", "loss-"] {
        for direction in ["to", "from"] {
            let case = format!("{network}stream-{direction}-server");
            for system in ["plain", "kernel", "xdp"] {
                is_positive(&rows, system, &case, "goodput");
            }
        }
    }
}

#[test]
fn what_needs_no_peer_is_measured() {
    let Some(rows) = rows(&["--only", "stack,idle"]) else { return };
    is_positive(&rows, "heddle-tcp", "stack-10000", "cost");
    assert_eq!(value(&rows, "xdp", "idle", "preemptions").unwrap_or(0.0), 0.0);
    is_positive(&rows, "xdp", "idle", "bytes");
}

#[test]
fn gets_beside_scans_are_served_on_both_networks() {
    let Some(rows) = rows(&["--only", "tail"]) else { return };
    for net in ["kernel", "xdp"] {
        let system = format!("heddle two-queue:quantum=100us net={net}");
        is_positive(&rows, &system, "get", "p99.9");
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
