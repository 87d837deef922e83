//! `heddle bench agent` as a process: every part once and briefly. If agents cannot run here, the bench says
//! so, and the test prints it.

use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

/// One at a time, since a CPU belongs to one enclave.
static TURN: Mutex<()> = Mutex::new(());

fn bench(words: &[&str]) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(HEDDLE);
    command.args(["bench", "agent", "--quick", "--json", "--rounds", "1"]).args(words);
    let output = command.stdin(Stdio::null()).output().unwrap();
    // The test log shows what was skipped, and why.
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains("skipped")).for_each(|line| eprintln!("{line}"));
    output
}

/// Returns the rows. On a busy machine a run may be invalid (exit code 3); a failed part says so on standard error.
fn rows(output: &Output) -> Vec<serde_json::Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{output:?}");
    let results: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    results["rows"].as_array().unwrap().clone()
}

fn find<'a>(
    rows: &'a [serde_json::Value],
    system: &str,
    case: &str,
    metric: &str,
) -> Option<&'a serde_json::Value> {
    let same = |row: &&serde_json::Value| {
        row["system"] == system && row["case"] == case && row["metric"] == metric
    };
    rows.iter().find(same)
}

/// Returns why agents cannot run here, if so.
fn no_agents(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().find(|line| line.contains("the default scheduler only"))?;
    eprintln!("skipped: {why}");
    Some(why.to_owned())
}

#[test]
fn services_have_rows_for_each_way_of_tuning_by_hand() {
    let rows = rows(&bench(&["--only", "services"]));
    for case in ["one", "two", "runaway"] {
        for metric in ["p99_ns", "batch_percent"] {
            let row = find(&rows, "default", case, metric).unwrap();
            assert_eq!(row["valid"], true, "{row}");
        }
        for system in ["default nice-19", "chrt -f 1", "autogroup", "cgroup weight", "agent-fair"] {
            // A way may be unavailable; its row then says so.
            let row = find(&rows, system, case, "p99_ns").unwrap();
            assert!(row["valid"] == true || row["note"].as_str() != Some(""), "{row}");
        }
    }
    if heddle_agent::fair::probe().is_ok() {
        let ratio = find(&rows, "agent-fair", "one", "p99_over_fifo");
        let fifo = find(&rows, "chrt -f 1", "one", "p99_ns").unwrap();
        assert!(ratio.is_some() || fifo["valid"] == false, "{rows:?}");
    }
}

#[test]
fn the_delay_has_rows_for_both_schedulers() {
    let output = bench(&["--only", "delay"]);
    let rows = rows(&output);
    for metric in ["p50_ns", "p99_ns", "p999_ns", "share_error_percent"] {
        let row = find(&rows, "default", "wakeup", metric).unwrap();
        assert_eq!(row["valid"], true, "{row}");
    }
    if no_agents(&output).is_some() {
        return;
    }
    let agent =
        |row: &&serde_json::Value| row["system"] == "agent-rt" || row["system"] == "agent-scx";
    let agents: Vec<_> = rows.iter().filter(agent).collect();
    for metric in ["p99_ns", "share_error_percent", "p99_gain"] {
        let row = agents.iter().find(|row| row["metric"] == metric);
        let row = row.unwrap_or_else(|| panic!("no {metric}: {output:?}"));
        assert_eq!(row["valid"], true, "{row}");
    }
}

#[test]
fn the_simulated_machine_has_a_point_for_each_number_of_cpus() {
    let output = bench(&["--only", "scaling"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows = rows(&output);
    let points = rows.iter().filter(|row| row["metric"] == "transactions");
    assert_eq!(points.count(), 8, "two curves, with and without offers, two numbers of CPUs");
    let offers = find(&rows, "ghost, offers", "scaling", "taken").unwrap();
    assert!(offers["value"].as_f64().unwrap() > 50.0, "{offers}");
    assert_eq!(find(&rows, "ghost", "scaling", "taken").unwrap()["value"], 0.0);
    let rate = |cpus: f64| {
        let same = |row: &&serde_json::Value| {
            row["metric"] == "transactions" && row["system"] == "ghost" && row["load"] == cpus
        };
        rows.iter().find(same).unwrap()["value"].as_f64().unwrap()
    };
    assert!(rate(32.0) > 0.0 && rate(4.0) > 0.0);
}

#[test]
fn each_operation_has_a_row() {
    let output = bench(&["--only", "table3"]);
    let rows = rows(&output);
    for metric in ["syscall_ns", "pthread_switch_ns", "sleep_switch_ns", "wakeup_ns"] {
        assert!(find(&rows, "default", "table3", metric).is_some(), "{metric}: {output:?}");
    }
    if no_agents(&output).is_none() {
        let has = |metric: &str| rows.iter().any(|row| row["metric"] == metric);
        assert!(has("delivery_global_ns") && has("local_schedule_ns"), "{output:?}");
    }
}

/// Checks that `systems` have a row in `case`, or one that says why not.
fn have_rows(rows: &[serde_json::Value], systems: &[&str], case: &str, metric: &str) {
    for system in systems {
        let row = find(rows, system, case, metric).unwrap_or_else(|| panic!("{system}, {case}"));
        assert!(row["valid"] == true || row["note"].as_str() != Some(""), "{row}");
    }
}

/// The default scheduler and what an operator does by hand.
const BY_HAND: [&str; 5] =
    ["default", "default nice-19", "default idle", "chrt -f 1", "cgroup weight"];

#[test]
fn the_server_has_rows_for_settings_by_hand_and_for_agents() {
    let output = bench(&["--only", "rocksdb"]);
    let rows = rows(&output);
    have_rows(&rows, &BY_HAND, "get", "p99");
    assert!(find(&rows, "default", "antagonists", "cpu_percent").is_some(), "{output:?}");
    if no_agents(&output).is_none() {
        let agents: Vec<_> =
            rows.iter().filter(|row| row["case"] == "get" && row["metric"] == "p99").collect();
        let has = |name: &str| agents.iter().any(|row| row["system"] == name);
        assert!(has("agent-rt") || has("agent-scx"), "{output:?}");
    }
}

#[test]
fn packet_workers_have_rows_for_each_kind_of_message_in_both_modes() {
    let output = bench(&["--only", "snap"]);
    let rows = rows(&output);
    have_rows(&rows, &BY_HAND, "quiet 64 B", "p99");
    have_rows(&rows, &BY_HAND, "loaded 64 B", "p99");
    for case in ["quiet 64 B", "quiet 64 kB", "loaded 64 B", "loaded 64 kB"] {
        for metric in ["p50", "p99", "p99.9", "wakeup_p99"] {
            let row = find(&rows, "default", case, metric);
            let row = row.unwrap_or_else(|| panic!("{case} {metric}: {output:?}"));
            assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        }
    }
    assert!(find(&rows, "default", "antagonists", "cpu_percent").is_some(), "{output:?}");
    if no_agents(&output).is_none() {
        let policy = |row: &&serde_json::Value| {
            let note = row["note"].as_str().unwrap_or_default();
            row["case"] == "loaded 64 B" && note.contains("policy priority")
        };
        assert!(rows.iter().any(|row| policy(&row)), "{output:?}");
    }
}

/// Time is simulated, so the run is valid on any machine.
#[test]
fn simulated_machines_have_rows_for_each_policy() {
    let output = bench(&["--only", "search,vm"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows = rows(&output);
    let policies =
        ["fifo, all nodes", "fifo", "cfs", "work-stealing", "locality, short wait", "locality"];
    for case in ["A", "B", "C"] {
        have_rows(&rows, &policies, case, "p99");
    }
    have_rows(&rows, &policies, "starts", "same_cache");
    let beside =
        |policy: &str| find(&rows, policy, "vm", "beside_other").unwrap()["value"].as_f64();
    assert_eq!(beside("core-edf"), Some(0.0));
    assert!(beside("cfs") > Some(0.0), "{output:?}");
}

#[test]
fn an_unknown_part_is_wrong_usage_and_the_known_ones_are_named() {
    let output = bench(&["--only", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("delay, services, table3"),
        "{output:?}"
    );
}
