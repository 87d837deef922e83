//! Simulated results for the cases of `heddle bench events`, with the same times, connections and loads.

use heddle_bench::events::{EventsOptions, LoadedOptions, PREFIX, Part, System, Workload};
use heddle_load::Op;
use heddle_metrics::{Row, Run};
use heddle_sim::events::{Case, Prediction, scenario};
use heddle_sim::{Connections, run};

/// Requests per simulation: enough for a p99.9, in at most a second in a release build.
const REQUESTS: u64 = 200_000;
/// Requests per simulation with `--quick`.
const QUICK_REQUESTS: u64 = 2_000;

/// Returns rows for the selected parts that the simulator knows.
///
/// # Errors
/// If the simulator refuses a scenario.
pub fn predict(options: &EventsOptions) -> anyhow::Result<Vec<Row>> {
    let requests = if options.quick { QUICK_REQUESTS } else { REQUESTS };
    let mut rows = Vec::new();
    let parts = [
        (Part::ZippyDb, &options.zippydb, "zippydb"),
        (Part::Gis, &options.gis, "gis"),
        (Part::Dilated, &options.dilated, "gis"),
    ];
    for (part, of, case) in parts {
        if options.parts.contains(&part) {
            rows.extend(predict_workload(of, case, requests)?);
        }
    }
    Ok(rows)
}

/// Returns rows for a workload, which is the simulator's `case` with times and connections of its own.
fn predict_workload(
    options: &LoadedOptions,
    case: &str,
    requests: u64,
) -> anyhow::Result<Vec<Row>> {
    let Some(case) = Case::find(case) else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for &load in &options.loads {
        // The simulator only accepts loads below capacity.
        let load = load.min(0.99);
        for system in options.systems.iter().filter(|system| is_simulated(system)) {
            let name = system.to_string();
            let workload = &options.workload;
            let mut scenario = scenario(case, &name, workload.threads, load, options.seed);
            scenario.mix = mix(workload).parse()?;
            scenario.connections = Connections {
                count: u32::try_from(workload.connections)?,
                dealt: workload.by_connection,
            };
            scenario.requests = requests;
            let prediction = Prediction::of(&run(&scenario)?);
            rows.extend(prediction_rows(&name, workload, workload.capacity() * load, &prediction));
        }
    }
    Ok(rows)
}

/// Whether the simulator has the system: it has no epoll with exclusive registrations.
fn is_simulated(system: &System) -> bool {
    *system != System::Exclusive
}

/// Formats the workload's classes for the simulator, the light class first.
fn mix(workload: &Workload) -> String {
    let name = |op| match op {
        Op::Get => "light",
        Op::Set => "medium",
        Op::Scan => "heavy",
    };
    let part = |class: &heddle_bench::events::Class| {
        format!("{}: {}% {}ns", name(class.op), class.share * 100.0, class.time.0)
    };
    workload.classes.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn prediction_rows(
    name: &str,
    workload: &Workload,
    rate: f64,
    prediction: &Prediction,
) -> Vec<Row> {
    let light = &prediction.classes[0];
    let times = [
        ("light_p50_ns", light.p50),
        ("light_p99_ns", light.p99),
        ("light_p999_ns", light.p999),
        ("p99_ns", prediction.all.p99),
        ("p999_ns", prediction.all.p999),
    ];
    let row = |(metric, time): (&str, heddle_core::Ns)| {
        // A growing backlog is a finding about the system, not a measurement error: the row stays valid and
        // carries a note.
        let note = if prediction.unstable.is_some() { "simulated: a backlog grew" } else { "" };
        let run = [Run::ok(time.0 as f64)];
        let system = format!("{PREFIX}{name}");
        Row::from_runs(&system, workload.name, metric, "ns", &run).with_load(rate).with_note(note)
    };
    times.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_bench::events::EventsOptions;

    #[test]
    fn each_load_of_each_simulated_system_has_rows() {
        let options = EventsOptions::new(&System::all(), true);
        let rows = predict(&options).unwrap();
        // Three parts, one load, six systems, five metrics.
        assert_eq!(rows.len(), 3 * 6 * 5);
        assert!(rows.iter().all(|row| row.system.starts_with(PREFIX) && row.load.is_some()));
        assert!(rows.iter().all(|row| row.system != "sim:epoll-exclusive"));
    }

    #[test]
    fn times_are_those_of_the_workload() {
        let options = EventsOptions::new(&System::all(), true);
        assert_eq!(mix(&options.zippydb.workload), "light: 97% 8150ns, heavy: 3% 1325000ns");
        let rows = predict_workload(&options.gis, "gis", QUICK_REQUESTS).unwrap();
        let p50 = rows.iter().find(|row| row.metric == "light_p50_ns").unwrap().value;
        assert!(p50 >= 200_000.0, "a light request takes 200 us: {p50}");
    }
}
