//! From samples to rows and to the sentence that people remember.

use super::measured::{Measured, Sample, ratio as ratio_of};
use super::options::KvOptions;
use super::system::System;
use crate::load::{Op, add_rows};
use heddle_core::Ns;
use heddle_metrics::{Better, Collector, Results, Row, Run, human};

/// A comparison's results.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// All rows.
    pub results: Results,
    /// The findings in plain words, the most important first.
    pub headlines: Vec<String>,
    /// Whether the rows that the headlines quote are valid.
    pub valid: bool,
    /// Whether somebody stopped it.
    pub interrupted: bool,
}

/// Medians over rounds, ratios within rounds, and words.
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
    let headlines = headlines(options, measured, &results);
    let quoted = |row: &&Row| row.metric == "p999_ratio";
    let valid =
        results.rows.iter().filter(quoted).all(|row| row.valid) && !measured.samples.is_empty();
    Verdict { results, headlines, valid, interrupted: measured.interrupted }
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

/// GET p99.9 of each system over that of two-queue in the same round, at half of saturation.
fn ratios(options: &KvOptions, measured: &Measured) -> Vec<Row> {
    let Some(reference) = options.systems.iter().position(|s| s.is_two_queue()) else {
        return Vec::new();
    };
    let half = options.half();
    let at = |system, round| {
        let here = |s: &&Sample| s.load == half && s.system == system && s.round == round;
        measured.samples.iter().find(here)
    };
    let others = (0..options.systems.len()).filter(|&s| s != reference);
    others
        .filter_map(|system| {
            let runs: Vec<Run> = (0..options.rounds)
                .filter_map(|round| Some(ratio(at(system, round)?, at(reference, round)?)))
                .collect();
            let name = options.systems[system].to_string();
            let rate = measured.samples.iter().find(|s| s.load == half)?.run.rate;
            let row = Row::from_runs(&name, "get", "p999_ratio", "x", &runs).with_load(rate);
            Some(row.with_better(Better::Lower).with_note("times the GET p99.9 of two-queue"))
        })
        .collect()
}

fn ratio(sample: &Sample, reference: &Sample) -> Run {
    let p999 = |s: &Sample| s.run.tally.op(Op::Get).latency.p999().0 as f64;
    let value = p999(sample) / p999(reference);
    match sample.run.invalid().or(reference.run.invalid()) {
        Some(why) => Run::invalid(value, why),
        None => Run::ok(value),
    }
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
        rows.push(row("scan_ratio", "x", ratio_of(c.scan_service, get)));
    }
    if let Some(quiet) = measured.machine_p999() {
        rows.push(row("get_alone_p99.9", "ns", quiet.0 as f64).with_note(QUIET));
    }
    rows
}

/// What the machine's own tail is.
const QUIET: &str = "few GETs without SCANs: what they wait for is the machine, not a schedule";

fn headlines(options: &KvOptions, measured: &Measured, results: &Results) -> Vec<String> {
    let Some(reference) = options.systems.iter().find(|s| s.is_two_queue()) else {
        return Vec::new();
    };
    let told = Told { options, results, reference, machine: measured.machine_p999() };
    let mut said: Vec<String> = options
        .systems
        .iter()
        .filter(|system| *system != reference)
        .filter_map(|other| told.against(other))
        .collect();
    said.extend(told.outliers());
    said.extend(told.find(reference, "scan_throughput_ratio", None).map(cost));
    said.extend(measured.ratio_in_words());
    said
}

/// What there is to tell of the system that others are held against.
struct Told<'a> {
    options: &'a KvOptions,
    results: &'a Results,
    reference: &'a System,
    /// The p99.9 of GETs that is the machine's own.
    machine: Option<Ns>,
}

impl Told<'_> {
    fn find(&self, system: &System, metric: &str, load: Option<f64>) -> Option<&Row> {
        let name = system.to_string();
        let same = |row: &&Row| {
            row.system == name
                && row.metric == metric
                && (row.case == "get" || row.case == "scan alone")
                && (load.is_none() || row.load == load)
        };
        self.results.rows.iter().find(same)
    }

    /// `other` against the reference at half of saturation.
    fn against(&self, other: &System) -> Option<String> {
        let ratio = self.find(other, "p999_ratio", None)?;
        let doubt = if ratio.valid { "" } else { " (an invalid run: do not quote)" };
        let tail = self.compared(other, "p99.9", ratio.load)?;
        let beside = self.compared(other, "p99", ratio.load).filter(|_| self.is_ruled(ratio.load));
        let beside = beside.map_or(String::new(), |p99| format!("; p99: {p99}"));
        let percent = self.options.loads[self.options.half()] * 100.0;
        let half = (percent - 50.0).abs() < 0.5;
        let load = if half { "half".into() } else { format!("{percent:.0} %") };
        Some(format!("p99.9 of GETs at {load} of saturation: {tail}{beside}{doubt}."))
    }

    fn compared(&self, other: &System, metric: &str, load: Option<f64>) -> Option<String> {
        let ours = self.find(self.reference, metric, load)?.value;
        let theirs = self.find(other, metric, load)?.value;
        Some(format!(
            "{} with {}, {} with {}: {}",
            human(ours, "ns"),
            self.reference.in_words(),
            human(theirs, "ns"),
            other.in_words(),
            times(theirs / ours),
        ))
    }

    /// Whether at least half of the reference's p99.9 is the machine's own: then it says more of the machine than of it.
    fn is_ruled(&self, load: Option<f64>) -> bool {
        let ours = self.find(self.reference, "p99.9", load);
        ours.zip(self.machine).is_some_and(|(ours, machine)| machine.0 as f64 * 2.0 >= ours.value)
    }

    fn outliers(&self) -> Option<String> {
        let load = self.results.rows.iter().find(|row| row.metric == "p999_ratio")?.load;
        let machine = self.machine.filter(|_| self.is_ruled(load))?;
        Some(format!(
            "The machine's own outliers rule the p99.9 here: few GETs without any SCAN have one of {}. Quote the p99.",
            human(machine.0 as f64, "ns")
        ))
    }
}

/// What preemption takes from SCANs, with the spread of the rounds: a loss inside it is none.
fn cost(kept: &Row) -> String {
    let lost = |kept: f64| (1.0 - kept) * 100.0;
    let (lost, least, most) = (lost(kept.value), lost(kept.max), lost(kept.min));
    if least <= 0.0 {
        return format!(
            "What it costs: nothing measurable of the throughput of SCANs alone \
             ({lost:.1} %, rounds from {least:.1} to {most:.1} %)."
        );
    }
    format!(
        "What it costs: {lost:.1} % of the throughput of SCANs alone \
         (rounds from {least:.1} to {most:.1} %)."
    )
}

fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 1.05 => format!("{r:.1} times lower"),
        r if r > 0.0 && r < 0.95 => format!("{:.1} times higher", 1.0 / r),
        _ => "no difference".into(),
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
