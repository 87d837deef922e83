//! `heddle bench connections` as a process: a few connections, briefly. Figures of such short runs mean
//! nothing, so none is checked.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(["bench", "connections"]).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn each_part_has_a_row_for_each_system_and_level() {
    let output = bench(&["--quick", "--json", "--connections", "150,100"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = results["rows"].as_array().unwrap();
    for part in ["accept", "few", "all"] {
        for system in ["heddle", "tokio"] {
            for (level, metric) in [(100, "rate"), (150, "rate"), (150, "rate_kept")] {
                let case = format!("{part}-{level}");
                let same = |row: &&Value| {
                    row["system"] == system && row["case"] == *case && row["metric"] == metric
                };
                let row = rows.iter().find(same);
                let row = row.unwrap_or_else(|| panic!("no {system} {case} {metric}"));
                assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
            }
        }
    }
}

#[test]
fn impossible_measurements_are_refused_with_an_explanation() {
    for (words, why) in [
        (["--connections", "0"], "from 1 to 1000000"),
        (["--only", "most"], "there are accept, few, all"),
        (["--systems", "go"], "there are heddle, tokio"),
        (["--report", "/no/such/folder/report.html"], "cannot write /no/such/folder/report.html"),
    ] {
        let output = bench(&words);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    }
}
