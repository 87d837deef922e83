//! `heddle bench cross` as a process: once and briefly. Figures of such a short run mean nothing, so none is checked.
//! What cannot run here is visibly left out.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "cross", "--quick"]).args(words);
    command.stdin(Stdio::null()).output().expect("it starts")
}

#[test]
fn each_layer_alone_and_both_have_rows() {
    let systems = ["kernel", "steer", "threads", "both", "ports-nice"];
    let output = bench(&["--json", "--systems", &systems.join(",")]);
    let said = String::from_utf8_lossy(&output.stderr);
    // On a busy machine a run may be invalid (exit code 3).
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rows = results["rows"].as_array().expect("rows");
    let left_out = said.lines().find(|line| line.contains("only kernel, "));
    if let Some(why) = left_out {
        eprintln!("skipped: {why}");
    }
    let find = |system: &str, metric: &str| {
        rows.iter().find(|row| row["system"] == system && row["metric"] == metric)
    };
    let can_run = |system: &&&str| left_out.is_none_or(|why| why.contains(**system));
    for system in systems.iter().filter(can_run) {
        for metric in ["get_p99_ns", "scan_p99_ns", "others_cpu_share"] {
            let row = find(system, metric);
            assert_eq!(row.map(|row| &row["case"]), Some(&"mix-50-50-load-80".into()), "{said}");
        }
    }
    if left_out.is_none() {
        assert!(find("both", "get_p99_gain").is_some(), "{said}");
        assert!(find("both", "agent_cpu_share").is_some(), "{said}");
        assert!(said.contains("target at least 2.00 times"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (words, expected) in [
        (["--systems", "threds"], "no system `threds`; there are kernel, scan-avoid, sita"),
        (["--loads", "120"], "--loads: 120 per cent of the capacity is not from 1 to 95"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}
