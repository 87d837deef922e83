//! Requests under load, in interleaved rounds.

use super::System;
use super::child::{Job, Served, Trial};
use super::launch::{self, Measured};
use super::micro::in_order;
use super::options::AsyncOptions;
use super::part::Part;
use super::workload::Workload;
use crate::posix::rounds::{attempts, busy_others, compared};
use heddle_core::Ns;
use heddle_load::Invalid;
use heddle_metrics::{Better, Collector, Progress, Row, Run};
use std::io;
use std::sync::atomic::AtomicBool;

/// Beyond this share of late requests the p99 may be the generator's.
const MOST_LATE: f64 = 0.005;

/// How long after the last arrival answers are awaited: a system that has none by then stopped serving.
const PATIENCE: Ns = Ns::from_secs(5);

/// Requests per second.
pub(super) const THROUGHPUT: &str = "throughput";
/// CPU time of the runtime's process per request, with what the request computes.
pub(super) const CPU: &str = "cpu_per_request";
const LATE: &str = "late_percent";

/// A figure of a Heddle system beside a peer's of the same round.
struct Comparison {
    metric: &'static str,
    peer: System,
    of: fn(&Served) -> f64,
    /// Of the system's and the peer's.
    how: fn(f64, f64) -> f64,
}

/// A response time of short requests, which is no number if none got an answer.
fn percentile(served: &Served, percent: f64) -> f64 {
    match served.short.is_empty() {
        true => f64::NAN,
        false => served.short.percentile(percent).0 as f64,
    }
}

const fn gain(metric: &'static str, peer: System) -> Comparison {
    Comparison {
        metric,
        peer,
        of: |served| percentile(served, 99.0),
        how: |ours, peer| peer / ours,
    }
}

/// How many times lower the p99 of short requests is than tokio's.
pub(super) const OVER_TOKIO: &str = "p99_gain_over_tokio";
/// The same with eight workers.
pub(super) const OVER_EIGHT: &str = "p99_gain_over_tokio_8";
/// The p50 of short requests divided by tokio's.
pub(super) const P50: &str = "p50_of_tokio";
/// The throughput divided by tokio's.
pub(super) const KEPT: &str = "throughput_of_tokio";

const UNDER_LOAD: [Comparison; 3] = [
    gain(OVER_TOKIO, System::Tokio),
    gain(OVER_EIGHT, System::TokioEight),
    Comparison {
        metric: P50,
        peer: System::Tokio,
        of: |served| percentile(served, 50.0),
        how: |ours, peer| ours / peer,
    },
];
const SATURATED: [Comparison; 1] = [Comparison {
    metric: KEPT,
    peer: System::Tokio,
    of: |served| served.throughput,
    how: |ours, peer| ours / peer,
}];

/// The case of short requests.
pub(super) fn short(part: Part) -> String {
    format!("{part}-short")
}

/// The case of long requests.
pub(super) fn long(part: Part) -> String {
    format!("{part}-long")
}

/// A load, as a share of the capacity, and its runs of one round.
type Turn = Vec<(System, Result<Measured<Served>, String>)>;

/// Measures a part; returns the rows so far if `stop` is set.
///
/// # Errors
/// Never: a process that fails gives an invalid row.
pub(super) fn run(
    options: &AsyncOptions,
    part: Part,
    workload: Workload,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        for load in options.loads(part) {
            let mut turn = Turn::new();
            let rate = load.map(|load| load * workload.capacity());
            for system in options.turns(part, round) {
                let of = load.map_or(String::new(), |load| format!(", load {:.0} %", load * 100.0));
                progress.step(&format!("{part}, round {}{of}: {system}", round + 1));
                let job = job(options, workload, system, rate, round);
                let cpus = [options.server(), options.cpus.load];
                let once = || launch::measure(options, &job, &cpus, stop);
                match attempts(options.tries, once, disturbed) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    measured => turn.push((system, measured.map_err(|error| error.to_string()))),
                }
            }
            add(&mut collect, part, rate, &turn);
        }
    }
    Ok(in_order(options, collect).into_iter().map(directed).collect())
}

fn job(
    options: &AsyncOptions,
    workload: Workload,
    system: System,
    rate: Option<f64>,
    round: u32,
) -> Job {
    Job::Service(Trial {
        system,
        kind: workload.kind,
        short_ns: workload.short.0,
        long_ns: workload.long.0,
        quantum_ns: workload.quantum.0,
        rate: rate.unwrap_or(0.0),
        time_ns: options.duration.0,
        patience_ns: PATIENCE.0,
        seed: options.seed + u64::from(round),
        steps_per_us: options.speed(),
        server: options.server(),
        load: options.cpus.load,
    })
}

/// Why a run must not be quoted.
fn invalid(measured: &Measured<Served>) -> Option<String> {
    let Served { due, lost, gave_up, .. } = measured.figures;
    match (due, lost) {
        (0, _) => Some(Invalid::Empty.to_string()),
        (_, 0) => disturbed(measured),
        _ => {
            let share = Invalid::Lost(lost as f64 / due as f64);
            let why = if gave_up { "fell too far behind: " } else { "" };
            Some(format!("{why}{share}"))
        }
    }
}

/// What the machine did to a run, so that another may be better.
fn disturbed(measured: &Measured<Served>) -> Option<String> {
    let Served { due, late, .. } = measured.figures;
    let late = late as f64 / due.max(1) as f64;
    let late = (late > MOST_LATE).then(|| Invalid::Late(late).to_string());
    late.or_else(|| busy_others(measured.others))
}

/// A figure as a run: valid, or with the reason why not.
fn figure(measured: &Result<Measured<Served>, String>, of: impl Fn(&Served) -> f64) -> Run {
    match measured {
        Err(why) => Run::invalid(f64::NAN, why.clone()),
        Ok(measured) => {
            let value = of(&measured.figures);
            match invalid(measured) {
                Some(why) => Run::invalid(value, why),
                None => Run::ok(value),
            }
        }
    }
}

/// Adds the runs of one round at one load; without a rate, at saturation.
fn add(collect: &mut Collector, part: Part, rate: Option<f64>, turn: &Turn) {
    let case = short(part);
    let mut at = match rate {
        Some(rate) => collect.at_load(rate),
        None => collect.without_load(),
    };
    for (system, measured) in turn {
        let name = system.name();
        if let (Ok(sample), Some(_)) = (measured, rate) {
            let why = invalid(sample);
            at.latency(name, &case, &sample.figures.short, why.as_deref());
            at.latency(name, &long(part), &sample.figures.long, why.as_deref());
        }
        at.add(name, &case, THROUGHPUT, "1/s", figure(measured, |served| served.throughput));
        at.add(name, &case, CPU, "ns", figure(measured, |served| served.cpu_ns));
        if rate.is_some() {
            let late = |served: &Served| served.late as f64 * 100.0 / served.due.max(1) as f64;
            at.add(name, &case, LATE, "%", figure(measured, late));
        }
        let comparisons: &[Comparison] = if rate.is_some() { &UNDER_LOAD } else { &SATURATED };
        for Comparison { metric, peer, of, how } in comparisons {
            let theirs = turn.iter().find(|(system, _)| system == peer);
            let Some((_, theirs)) = theirs.filter(|_| system.is_heddle()) else { continue };
            let run = compared(*how, figure(measured, of), figure(theirs, of));
            at.add(name, &case, metric, "x", run);
        }
    }
}

fn directed(row: Row) -> Row {
    let is_higher = row.metric.contains("_gain") || row.metric == KEPT;
    if is_higher { row.with_better(Better::Higher) } else { row }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(p99: u64) -> Measured<Served> {
        let mut figures = Served { due: 1_000, throughput: 5e4, ..Served::default() };
        figures.short.record_n(Ns(p99), 1_000);
        Measured { figures, others: 0.0 }
    }

    #[test]
    fn a_run_is_invalid_if_the_generator_was_late_others_ran_or_requests_are_lost() {
        let why = |change: fn(&mut Measured<Served>)| {
            let mut measured = served(1_000);
            change(&mut measured);
            (invalid(&measured).unwrap_or_default(), disturbed(&measured).is_some())
        };
        assert_eq!(why(|_| ()), (String::new(), false));
        assert_eq!(why(|run| run.figures.late = 5), (String::new(), false));
        let (text, again) = why(|run| run.figures.late = 6);
        assert!(text.contains("late for 0.60 %") && again, "{text}");
        let (text, again) = why(|run| run.others = 0.5);
        assert!(text.contains("others used 50.0 %") && again, "{text}");
        // A system that serves too little is not measured again.
        let (text, again) = why(|run| run.figures.lost = 10);
        assert!(text.starts_with("1.00 % of the requests") && !again, "{text}");
        let (text, _) = why(|run| (run.figures.lost, run.figures.gave_up) = (10, true));
        assert!(text.starts_with("fell too far behind: 1.00 %"), "{text}");
        let (text, _) = why(|run| run.figures.due = 0);
        assert_eq!(text, "no request was measured");
    }

    #[test]
    fn gains_are_of_two_runs_of_one_round_and_invalid_with_either() {
        let rows = |tokio: Result<Measured<Served>, String>| {
            let mut collect = Collector::new();
            let turn = vec![(System::TwoQueue, Ok(served(1_000))), (System::Tokio, tokio)];
            add(&mut collect, Part::OneMs, Some(33_000.0), &turn);
            collect.into_rows()
        };
        let all = rows(Ok(served(4_000)));
        let gain = |rows: &[Row]| rows.iter().find(|row| row.metric == OVER_TOKIO).unwrap().clone();
        assert!((gain(&all).value - 4.0).abs() < 0.01 && gain(&all).valid);
        assert!(all.iter().all(|row| row.metric != OVER_EIGHT), "it is not in the turn");
        assert!(all.iter().all(|row| row.system != "tokio" || row.unit != "x"));
        let failed = gain(&rows(Err("not done after 60 s".into())));
        assert!(!failed.valid && failed.note.contains("not done"), "{failed:?}");
        let mut silent = served(1);
        (silent.figures.short, silent.figures.lost) = (Default::default(), 1_000);
        let none = gain(&rows(Ok(silent)));
        assert!(!none.valid && none.value == 0.0, "{none:?}");
    }

    #[test]
    fn at_saturation_there_are_rates_and_no_latencies() {
        let mut collect = Collector::new();
        let turn = vec![(System::TwoQueue, Ok(served(1))), (System::Tokio, Ok(served(1)))];
        add(&mut collect, Part::Saturation, None, &turn);
        let rows = collect.into_rows();
        assert!(rows.iter().all(|row| row.metric != "p99" && row.load.is_none()));
        let kept = rows.iter().find(|row| row.metric == KEPT).unwrap();
        assert!((kept.value - 1.0).abs() < 1e-9);
    }
}
