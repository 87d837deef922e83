//! Another thread toggles affinities as fast as it can while an agent commits: what fails, and whether a
//! thread is lost.

use super::super::launch::{Enclave, Launcher};
use super::{FateOptions, LOST, Managed, enclave, name, stopped};
use crate::suite::{PartResult, Target};
use heddle_agent::guardian::{Kind, Stage};
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// The case in results.
const CASE: &str = "storm";

/// The last known state of the enclave.
#[derive(Default)]
struct LastStatus {
    active: bool,
    outcomes: BTreeMap<String, u64>,
}

/// One storm.
pub(in super::super) fn storm(
    options: &FateOptions,
    kind: Kind,
    launcher: &Launcher,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    progress.step("storm: affinities are toggled");
    let mut spec = options.spec();
    spec.duration_ns = options.storm.0;
    spec.toggle = toggled(options);
    let load = Managed::start(launcher, enclave(options, kind), &spec)?;
    load.wait_for_agent(stop)?;
    let seen = watch(&load.enclave, Ns(spec.warmup_ns + spec.duration_ns), stop);
    let report = load.report(&spec, stop)?;
    let (lost, toggles) = (report.lost(LOST), report.toggled);
    progress.line(&format!("  {toggles} changes of affinity, {lost} threads lost"));
    for (outcome, count) in &seen.outcomes {
        progress.line(&format!("  transactions {outcome}: {count}"));
    }
    let mut collect = Collector::new();
    let system = name(kind);
    let mut add = |metric: &str, value: f64| collect.add(&system, CASE, metric, "", Run::ok(value));
    add("toggles", toggles as f64);
    add("lost_threads", lost as f64);
    add("disabled", f64::from(u8::from(!seen.active)));
    for (outcome, count) in &seen.outcomes {
        add(&format!("outcome_{outcome}"), *count as f64);
    }
    Ok(found(collect.into_rows()))
}

/// The enclave's CPUs; if it has one, also a CPU outside, or nothing would change.
fn toggled(options: &FateOptions) -> Vec<u32> {
    let mut cpus = options.cpus.clone();
    if cpus.len() < 2 {
        let all = heddle_sys::thread::affinity().unwrap_or_default();
        cpus.extend(all.into_iter().find(|cpu| !options.cpus.contains(cpu)));
    }
    cpus
}

/// Watches until shortly before the load ends.
fn watch(enclave: &Enclave, length: Ns, stop: &AtomicBool) -> LastStatus {
    let end = heddle_sys::clock::now() + Ns(length.0 * 9 / 10);
    let mut seen = LastStatus::default();
    while heddle_sys::clock::now() < end && !stopped(stop) {
        thread::sleep(Duration::from_millis(100));
        if let Some(listed) = enclave.find() {
            seen.active = listed.record.stage == Stage::Active;
            let status = std::fs::read_to_string(listed.folder.status()).unwrap_or_default();
            if let Some(outcomes) = outcomes(&status) {
                seen.outcomes = outcomes;
            }
        }
    }
    seen
}

/// The counts of transactions by outcome, wherever they are in the agent's report.
fn outcomes(status: &str) -> Option<BTreeMap<String, u64>> {
    fn find(value: &serde_json::Value) -> Option<&serde_json::Map<String, serde_json::Value>> {
        let object = value.as_object()?;
        let here = object.get("outcomes").and_then(serde_json::Value::as_object);
        here.or_else(|| object.values().find_map(find))
    }
    let value = serde_json::from_str(status).ok()?;
    let counts =
        find(&value)?.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
    Some(counts.filter(|(_, count)| *count > 0).collect())
}

fn found(rows: Vec<Row>) -> PartResult {
    let find = |metric: &str| rows.iter().find(|row| row.metric == metric);
    let target = |(metric, what)| find(metric).map(|row| Target::never_above(what, row, 0.0));
    let targets = [
        ("lost_threads", "affinity storm: lost threads"),
        ("disabled", "affinity storm: agent or scheduler disabled"),
    ];
    PartResult {
        targets: targets.into_iter().filter_map(target).collect(),
        rows,
        ..PartResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_found_in_a_report() {
        let status = r#"{"schema":1,"counts":{"outcomes":{"committed":7,"stale":0,"affinity":2}}}"#;
        let found = outcomes(status).unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("affinity".into(), 2), ("committed".into(), 7)]
        );
        assert_eq!(outcomes("{}"), None);
        assert_eq!(outcomes("none"), None);
    }
}
