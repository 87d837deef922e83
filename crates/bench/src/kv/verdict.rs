//! From samples to rows, and to what they show.

use super::measured::{Measured, Sample, ratio};
use super::options::KvOptions;
use super::summary::Summary;
use super::system::System;
use super::tail::{TAILS, ratio_row};
use heddle_load::add_rows;
use heddle_metrics::{BarChart, Better, Collector, Results, Row, Run, Table};

/// The results of a comparison.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// All rows.
    pub results: Results,
    /// The main finding; `None` without the two-queue policy and another system.
    pub headline: Option<String>,
    /// The figure that shows it.
    pub picture: Option<BarChart>,
    /// Each system at each load; its notes say what a reader must know beside the figures.
    pub table: Option<Table>,
    /// Whether the rows that are compared may be quoted.
    pub valid: bool,
    /// Whether it was stopped early.
    pub interrupted: bool,
}

/// Medians over rounds, ratios within rounds, and the summary.
pub fn judge(options: &KvOptions, measured: &Measured) -> Verdict {
    let mut collect = Collector::new();
    for sample in &measured.samples {
        add_sample(&mut collect, options, sample);
    }
    let mut rows = collect.into_rows();
    rows.extend(ratios(options, measured));
    rows.extend(scan_rows(options, measured));
    rows.extend(calibration_rows(measured));
    let results = Results::here(rows);
    let quoted = |row: &&Row| row.metric == "p999_ratio";
    let valid =
        results.rows.iter().filter(quoted).all(|row| row.valid) && !measured.samples.is_empty();
    let summary = Summary::new(options, measured, &results);
    Verdict {
        headline: summary.as_ref().and_then(Summary::headline),
        picture: summary.as_ref().and_then(Summary::picture),
        table: summary.as_ref().map(Summary::table),
        valid,
        interrupted: measured.interrupted,
        results,
    }
}

fn add_sample(collect: &mut Collector, options: &KvOptions, sample: &Sample) {
    let system = options.systems[sample.system].to_string();
    add_rows(collect, &system, &options.mix, &sample.run);
    if let Some(cpu) = sample.cpu {
        let invalid = sample.run.invalid();
        let run = invalid.map_or(Run::ok(cpu), |why| Run::invalid(cpu, why));
        collect.at_load(sample.run.rate).add(&system, "all", "cpu", "%", run);
    }
}

/// Each system's GETs over those of two-queue in the same round, at half of saturation.
fn ratios(options: &KvOptions, measured: &Measured) -> Vec<Row> {
    let Some(reference) = options.systems.iter().position(System::is_two_queue) else {
        return Vec::new();
    };
    let others = (0..options.systems.len()).filter(|&system| system != reference);
    let pairs = others.flat_map(|system| TAILS.map(|tail| (tail, (system, reference))));
    let half = options.half();
    pairs.filter_map(|(tail, pair)| ratio_row(options, measured, tail, pair, half)).collect()
}

/// SCANs alone: how many a second, and relative to the same runtime without preemption.
fn scan_rows(options: &KvOptions, measured: &Measured) -> Vec<Row> {
    let rate = |system, round| {
        let here = measured.scans.iter().find(|s| s.system == system && s.round == round);
        here.map(|s| s.rate)
    };
    let fifo = options.systems.iter().position(|s| s.is_fifo());
    let mut rows = Vec::new();
    for (system, of) in options.systems.iter().enumerate() {
        let name = of.to_string();
        let runs = |value: &dyn Fn(u32) -> Option<f64>| {
            (0..options.rounds).filter_map(value).map(Run::ok).collect::<Vec<_>>()
        };
        let rates = runs(&|round| rate(system, round));
        if !rates.is_empty() {
            rows.push(Row::from_runs(&name, "scan alone", "throughput_alone", "op/s", &rates));
        }
        let relative = |fifo| runs(&|round| Some(rate(system, round)? / rate(fifo, round)?));
        let ratios = fifo.filter(|_| of.is_preemptive()).map(relative).unwrap_or_default();
        if !ratios.is_empty() {
            let row = Row::from_runs(&name, "scan alone", "scan_throughput_ratio", "", &ratios);
            rows.push(row.with_better(Better::Higher).with_note("1 - the cost of preemption"));
        }
    }
    rows
}

fn calibration_rows(measured: &Measured) -> Vec<Row> {
    let Some(c) = measured.calibrated else { return Vec::new() };
    let row = |metric: &str, unit: &str, value: f64| {
        Row::from_runs("calibration", "machine", metric, unit, &[Run::ok(value)])
    };
    let mut rows = vec![
        row("saturation", "op/s", c.saturation),
        row("scan_len", "keys", c.scan_len.into()),
        row("scan_service", "ns", c.scan_service.0 as f64),
    ];
    if let Some(get) = measured.get_service {
        rows.push(row("get_service", "ns", get.0 as f64));
        rows.push(row("scan_ratio", "x", ratio(c.scan_service, get)));
    }
    if let Some(quiet) = measured.machine_p999() {
        rows.push(row("get_alone_p99.9", "ns", quiet.0 as f64).with_note(QUIET));
    }
    rows
}

/// The note on the machine's own tail.
const QUIET: &str = "few GETs, no SCANs: the machine delays them, not the scheduler";

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
