//! Rows and the table of the server with antagonists.

use super::super::system::System;
use super::ServerOptions;
use super::point::Sample;
use heddle_load::{Mix, Op, add_rows};
use heddle_metrics::{Better, Cell, Collector, Mark, Row, Run, Table, human};

/// Results of the same round that others are compared with.
#[derive(Default)]
pub(super) struct Before {
    /// The default scheduler's.
    pub(super) default: Vec<Sample>,
    /// Those with the antagonists at nice 19.
    pub(super) nice: Vec<Sample>,
}

/// The one at the load of `sample`.
fn same<'a>(all: &'a [Sample], sample: &Sample) -> Option<&'a Sample> {
    all.iter().find(|one| one.share == sample.share)
}

/// Adds the result of one system at one load.
pub(super) fn add(
    collect: &mut Collector,
    mix: &Mix,
    system: &System,
    sample: &Sample,
    before: &Before,
) {
    let name = system.to_string();
    add_rows(collect, &name, mix, &sample.run);
    let why = sample.invalid();
    let run = |value: f64, why: Option<String>| match why {
        Some(why) => Run::invalid(value, why),
        None => Run::ok(value),
    };
    let mut at = collect.at_load(sample.run.rate);
    if let Some(share) = sample.antagonists {
        at.add(&name, "antagonists", "cpu_percent", "%", run(share, why.clone()));
    }
    if let Some(default) = same(&before.default, sample) {
        let p99 = |sample: &Sample| sample.run.tally.op(Op::Get).latency.p99().0 as f64;
        let why = why.clone().or_else(|| default.invalid());
        at.add(&name, "get", "p99_gain", "x", run(p99(default) / p99(sample), why));
    }
    if let Some(nice) = same(&before.nice, sample)
        && let Some((share, of_nice)) = sample.antagonists.zip(nice.antagonists)
        && of_nice > 0.0
    {
        let why = why.or_else(|| nice.invalid());
        at.add(&name, "antagonists", "cpu_over_nice", "x", run(share / of_nice, why));
    }
}

/// Adds policies and directions to the rows.
pub(super) fn noted(options: &ServerOptions, rows: Vec<Row>) -> Vec<Row> {
    let policy = |row: &Row| {
        let system = options.systems.iter().find(|system| system.to_string() == row.system);
        system.and_then(System::policy).map(|policy| format!("policy {policy}"))
    };
    let note = |row: Row| {
        let row = match policy(&row) {
            Some(policy) => row.with_note(&policy),
            None => row,
        };
        match row.metric.as_str() {
            "p99_gain" | "cpu_percent" | "cpu_over_nice" => row.with_better(Better::Higher),
            _ => row,
        }
    };
    rows.into_iter().map(note).collect()
}

/// One line per system and load.
pub(super) fn table(options: &ServerOptions, rows: &[Row]) -> Option<Table> {
    let title = format!(
        "A server of {} threads beside {} antagonists on one CPU",
        options.threads, options.antagonists
    );
    let head = [
        "load",
        "system",
        "GET p50",
        "p99",
        "rounds",
        "p99.9",
        "default's p99 over it",
        "SCAN p99",
        "antagonists",
        "over nice-19's",
    ];
    let mut table = Table::new(title, head);
    let mut lines: Vec<&Row> =
        rows.iter().filter(|row| row.case == "get" && row.metric == "p99").collect();
    lines.sort_by(|a, b| a.load.unwrap_or_default().total_cmp(&b.load.unwrap_or_default()));
    for p99 in lines {
        let find = |case: &str, metric: &str| {
            let same = |row: &&Row| row.system == p99.system && row.load == p99.load;
            rows.iter().filter(same).find(|row| row.case == case && row.metric == metric)
        };
        let time =
            |case, metric| find(case, metric).map_or("-".into(), |row| human(row.value, "ns"));
        let plain = |case, metric, unit: &str| {
            find(case, metric).map_or("-".into(), |row| format!("{:.1}{unit}", row.value))
        };
        let ratio =
            |case, metric| find(case, metric).map_or("-".into(), |row| format!("{:.2}", row.value));
        let mark = if p99.valid { Mark::Plain } else { Mark::Invalid };
        table.push(vec![
            Cell::number(p99.load.map_or("-".into(), |load| human(load, "1/s"))),
            Cell::text(p99.system.clone()),
            Cell::number(time("get", "p50")),
            Cell::number(human(p99.value, "ns")).marked(mark),
            Cell::number(format!("{}..{}", human(p99.min, "ns"), human(p99.max, "ns"))),
            Cell::number(time("get", "p99.9")),
            Cell::number(plain("get", "p99_gain", "")),
            Cell::number(time("scan", "p99")),
            Cell::number(plain("antagonists", "cpu_percent", " %")),
            Cell::number(ratio("antagonists", "cpu_over_nice")),
        ]);
    }
    for system in options.systems.iter().filter(|system| system.policy().is_some()) {
        table.notes.push(format!("{system}: {}", system.policy().unwrap_or_default()));
    }
    table.notes.push(format!(
        "server and antagonists on CPU {}, load generator and agent on CPU {}; default nice-19: the antagonists \
         at nice 19; default idle: at SCHED_IDLE; chrt -f 1: the server; cgroup weight: the highest for the server, \
         the lowest for the antagonists; antagonists: their share of the CPU",
        options.server_cpu, options.load_cpu
    ));
    (!table.rows.is_empty()).then_some(table)
}
