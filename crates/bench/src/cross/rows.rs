//! Rows, tables and the target.

use super::options::{TARGET_LOAD, case};
use super::point::Sample;
use super::{CrossOptions, System};
use crate::suite::Target;
use heddle_load::Op;
use heddle_metrics::{Better, Cell, Collector, Mark, Row, Run, Table, human};

/// How many times lower `both`'s GET p99 is than that of the better layer alone.
const GAIN: &str = "get_p99_gain";
/// The target.
const LEAST_GAIN: f64 = 2.0;

/// All rows.
pub(super) fn rows(samples: &[Sample]) -> Vec<Row> {
    let mut collect = Collector::new();
    for sample in samples {
        add(&mut collect, sample);
    }
    for both in samples.iter().filter(|sample| sample.system == System::Both) {
        if let Some(gain) = gain(samples, both) {
            let mut at = collect.at_load(both.run.rate);
            at.add(System::Both.name(), &case(both.load), GAIN, "x", gain);
        }
    }
    let better = |row: Row| match row.metric.as_str() {
        GAIN => row
            .with_better(Better::Higher)
            .with_note("the GET p99 of the better layer alone over its own, in each round"),
        _ => row,
    };
    collect.into_rows().into_iter().map(better).collect()
}

fn add(collect: &mut Collector, sample: &Sample) {
    let (system, case, why) = (sample.system.name(), case(sample.load), sample.invalid());
    let run = |value: f64| match &why {
        Some(why) => Run::invalid(value, why.clone()),
        None => Run::ok(value),
    };
    let mut at = collect.at_load(sample.run.rate);
    for op in [Op::Get, Op::Scan] {
        let latency = &sample.run.tally.op(op).latency;
        for (name, percent) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)] {
            let metric = format!("{}_{name}_ns", op.name());
            at.add(system, &case, &metric, "ns", run(latency.percentile(percent).0 as f64));
        }
        let metric = format!("{}_throughput", op.name());
        at.add(system, &case, &metric, "op/s", run(sample.run.throughput(op)));
    }
    let service = sample.run.tally.op(Op::Scan).service.p50().0 as f64;
    at.add(system, &case, "scan_service_p50_ns", "ns", run(service));
    let counts = sample.run.tally.counts();
    at.add(system, &case, "dropped_share", "%", run(counts.lost_share() * 100.0));
    at.add(system, &case, "late_share", "%", run(counts.late_share() * 100.0));
    at.add(system, &case, "others_cpu_share", "%", run(sample.others));
    if let Some(share) = sample.agent {
        at.add(system, &case, "agent_cpu_share", "%", run(share));
    }
}

/// The gain of `both` in its round. Not comparable without steering alone and threads alone.
fn gain(samples: &[Sample], both: &Sample) -> Option<Run> {
    let of_round = |sample: &&Sample| {
        sample.round == both.round && sample.load == both.load && sample.system.is_alone()
    };
    let alone: Vec<&Sample> = samples.iter().filter(of_round).collect();
    let has = |threads: bool| alone.iter().any(|s| (s.system == System::Threads) == threads);
    if !(has(true) && has(false)) {
        return None;
    }
    let better = alone.iter().min_by(|a, b| a.get_p99().total_cmp(&b.get_p99()))?;
    let gain = better.get_p99() / both.get_p99();
    Some(match both.invalid().or_else(|| better.invalid()) {
        Some(why) => Run::invalid(gain, why),
        None => Run::ok(gain),
    })
}

/// The target, if its load was measured.
pub(super) fn targets(rows: &[Row]) -> Vec<Target> {
    let wanted = |row: &&Row| row.metric == GAIN && row.case == case(TARGET_LOAD);
    let target = |row| {
        let what = "GET p99 at 80 % load: both, against the better layer alone";
        Target::at_least(what, row, LEAST_GAIN)
    };
    rows.iter().filter(wanted).map(target).collect()
}

/// A table for each load.
pub(super) fn tables(options: &CrossOptions, rows: &[Row]) -> Vec<Table> {
    options.loads.iter().filter_map(|&load| table(options, load, rows)).collect()
}

fn table(options: &CrossOptions, load: f64, rows: &[Row]) -> Option<Table> {
    let rate = human(CrossOptions::capacity() * load, "1/s");
    let title = format!(
        "50 % GETs of 10 us, 50 % SCANs of 700 us, {rate} offered: {:.0} % of one CPU",
        load * 100.0
    );
    let head =
        ["system", "GET p50", "GET p99", "rounds", "SCAN p50", "SCAN p99", "dropped", "agent"];
    let mut table = Table::new(title, head);
    for system in &options.systems {
        let find = |metric: &str| {
            let same = |row: &&Row| {
                row.system == system.name() && row.case == case(load) && row.metric == metric
            };
            rows.iter().find(same)
        };
        let Some(p99) = find("get_p99_ns") else { continue };
        let spread = format!("{}..{}", human(p99.min, &p99.unit), human(p99.max, &p99.unit));
        table.push(vec![
            Cell::text(system.name()),
            cell(find("get_p50_ns")),
            cell(Some(p99)),
            Cell::number(spread),
            cell(find("scan_p50_ns")),
            cell(find("scan_p99_ns")),
            cell(find("dropped_share")),
            cell(find("others_cpu_share")),
            cell(find("agent_cpu_share")),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn cell(row: Option<&Row>) -> Cell {
    let Some(row) = row else { return Cell::number("-") };
    let cell = Cell::number(human(row.value, &row.unit));
    if row.valid { cell } else { cell.marked(Mark::Invalid) }
}
