//! A latency-critical server beside a batch program on one CPU, under load, in interleaved rounds.

use super::options::ShareOptions;
use super::part::Part;
use super::system::System;
use super::testbed::{Sample, Testbed};
use crate::posix::rounds::{attempts, compared};
use heddle_load::Op;
use heddle_metrics::{Better, Collector, Progress, Row, Run};
use std::io;
use std::sync::atomic::AtomicBool;

/// A system's p99 divided by that of the server alone, of the same round.
pub(super) const OVER_ALONE: &str = "p99_over_alone";
/// A system's p99 divided by that of the share in real time, of the same round.
pub(super) const OVER_SHARE: &str = "p99_over_share";
/// The batch program's steps per second.
pub(super) const STEPS: &str = "be_steps";
/// The same, of what it does alone on that CPU, in per cent.
pub(super) const BE_SHARE: &str = "be_share";
/// That divided by what the server left of the CPU, in per cent.
pub(super) const OF_LEFT: &str = "of_left";
/// The server's CPU time, in per cent of the CPU.
pub(super) const BUSY: &str = "lc_cpu";
/// How long the server waits for the CPU.
pub(super) const WAIT: &str = "wait_mean";
/// The longest such wait.
pub(super) const LONGEST: &str = "wait_longest";

/// A load, and what was measured in one round.
struct Turn {
    rate: f64,
    /// The batch program's steps per second, alone.
    alone: Run,
    runs: Vec<(System, Result<Sample, String>)>,
}

/// The rows of a part, and what the server can do alone.
pub(super) struct Colocated {
    pub(super) rows: Vec<Row>,
    pub(super) capacity: f64,
}

/// Measures a part; returns the rows so far if `stop` is set.
///
/// # Errors
/// The server does not start alone.
pub(super) fn run(
    options: &ShareOptions,
    part: Part,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Colocated> {
    progress.step(&format!("{part}: what the server can do alone"));
    let testbed = Testbed::prepare(options, part, stop)?;
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        let alone = match testbed.batch_alone() {
            Ok(rate) => Run::ok(rate),
            Err(error) => Run::invalid(f64::NAN, error.to_string()),
        };
        for &load in options.loads(part) {
            let rate = testbed.rate(load);
            let mut turn = Turn { rate, alone: alone.clone(), runs: Vec::new() };
            for system in options.turns(part, round) {
                let at = format!("round {}, load {:.0} %", round + 1, load * 100.0);
                progress.step(&format!("{part}, {at}: {system}"));
                let once = || testbed.measure(system, (load, round), stop);
                let measured = match attempts(options.tries, once, Sample::invalid) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    measured => measured.map_err(|error| error.to_string()),
                };
                progress.line(&line(system, &measured));
                turn.runs.push((system, measured));
            }
            add(&mut collect, part, &turn);
        }
        collect.add("calibration", part_case(part), STEPS, "1/s", alone);
    }
    let mut rows: Vec<Row> = collect.into_rows().into_iter().map(directed).collect();
    rows.sort_by_key(|row| System::ALL.iter().position(|system| system.name() == row.system));
    let capacity = testbed.capacity;
    let saturation = [Run::ok(capacity)];
    rows.push(Row::from_runs("calibration", part_case(part), "saturation", "1/s", &saturation));
    Ok(Colocated { rows, capacity })
}

/// The case in results.
pub(super) fn part_case(part: Part) -> &'static str {
    crate::suite::Part::name(part)
}

fn line(system: System, measured: &Result<Sample, String>) -> String {
    match measured {
        Err(why) => format!("  {system}: {why}"),
        Ok(sample) => {
            let mark = sample.invalid().map_or(String::new(), |why| format!("  ! {why}"));
            format!("  {system:<15} {}{mark}", sample.summary())
        }
    }
}

/// A figure as a run: valid, or with the reason why not.
fn figure(measured: &Result<Sample, String>, of: impl Fn(&Sample) -> f64) -> Run {
    match measured {
        Ok(sample) => Run { value: of(sample), invalid: sample.invalid() },
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

fn tail(sample: &Sample) -> f64 {
    sample.run.tally.op(Op::Get).latency.p99().0 as f64
}

/// Adds the runs of one round at one load.
fn add(collect: &mut Collector, part: Part, turn: &Turn) {
    let case = part_case(part);
    let mut at = collect.at_load(turn.rate);
    let of = |wanted| turn.runs.iter().find(|(system, _)| *system == wanted).map(|(_, run)| run);
    for (system, measured) in &turn.runs {
        let name = system.name();
        match measured {
            Ok(sample) => {
                let why = sample.invalid();
                let latency = &sample.run.tally.op(Op::Get).latency;
                at.latency(name, case, latency, why.as_deref());
                let late = |sample: &Sample| sample.run.tally.counts().late_share() * 100.0;
                at.add(name, case, "late_percent", "%", figure(measured, late));
                at.add(name, case, BUSY, "%", figure(measured, |sample| sample.busy * 100.0));
                for (metric, unit, run) in beside(measured, sample, &turn.alone) {
                    at.add(name, case, metric, unit, run);
                }
            }
            Err(_) => at.add(name, case, "p99", "ns", figure(measured, tail)),
        }
        let over = |peer| compared(|ours, peer| ours / peer, figure(measured, tail), peer);
        if let Some(alone) = of(System::Alone).filter(|_| system.has_batch()) {
            at.add(name, case, OVER_ALONE, "x", over(figure(alone, tail)));
        }
        let compares = system.has_batch() && *system != System::Share;
        if let Some(share) = of(System::Share).filter(|_| compares) {
            at.add(name, case, OVER_SHARE, "x", over(figure(share, tail)));
        }
    }
}

/// The figures of the batch program, and of the broker.
fn beside(
    measured: &Result<Sample, String>,
    sample: &Sample,
    alone: &Run,
) -> Vec<(&'static str, &'static str, Run)> {
    let mut found = Vec::new();
    if let Some(steps) = sample.steps {
        let percent = |steps, alone| steps * 100.0 / alone;
        let share = compared(percent, figure(measured, |_| steps), alone.clone());
        let left = (1.0 - sample.busy).max(0.01);
        let of_left = Run { value: share.value / left, invalid: share.invalid.clone() };
        found.push((STEPS, "1/s", figure(measured, |_| steps)));
        found.push((BE_SHARE, "%", share));
        found.push((OF_LEFT, "%", of_left));
    }
    if let Some(waits) = sample.waits {
        found.push((WAIT, "ns", figure(measured, |_| waits.mean_ns)));
        found.push((LONGEST, "ns", figure(measured, |_| waits.longest_ns)));
    }
    found
}

fn directed(row: Row) -> Row {
    match row.metric.as_str() {
        BE_SHARE | OF_LEFT => row.with_better(Better::Higher),
        _ => row,
    }
}

#[cfg(test)]
mod tests {
    use super::super::setup::Waits;
    use super::*;
    use heddle_core::Ns;
    use heddle_load::{Answer, LoadRun, Tally};

    /// A run of a hundred requests, all of which took `ns`.
    fn sample(ns: u64, steps: Option<f64>, busy: f64) -> Sample {
        let mut tally = Tally::new(Ns::from_secs(1), [None; Op::ALL.len()]);
        for id in 0..100 {
            tally.sent(Op::Get, Ns::ZERO, Ns::ZERO);
            tally.completed(Op::Get);
            tally.answered(Op::Get, Ns(ns), Answer { id, ok: true, service: None, at: None });
        }
        let run = LoadRun { rate: 100.0, tally, window: Ns::from_secs(1) };
        Sample { run, steps, busy, waits: None, others: 0.0 }
    }

    fn rows(runs: Vec<(System, Result<Sample, String>)>) -> Vec<Row> {
        let mut collect = Collector::new();
        add(&mut collect, Part::Service, &Turn { rate: 50.0, alone: Run::ok(200.0), runs });
        collect.into_rows()
    }

    fn find<'a>(rows: &'a [Row], system: System, metric: &str) -> Option<&'a Row> {
        rows.iter().find(|row| row.system == system.name() && row.metric == metric)
    }

    #[test]
    fn the_batch_program_is_compared_with_what_the_server_left() {
        let waits = Some(Waits { mean_ns: 5.0, longest_ns: 9.0 });
        let rows = rows(vec![
            (System::Alone, Ok(sample(1_000, None, 0.6))),
            (System::Share, Ok(Sample { waits, ..sample(1_500, Some(80.0), 0.6) })),
        ]);
        let of = |metric| find(&rows, System::Share, metric).unwrap().value;
        assert_eq!((of(STEPS), of(BE_SHARE)), (80.0, 40.0));
        assert!((of(OF_LEFT) - 100.0).abs() < 1e-9);
        assert_eq!((of(WAIT), of(LONGEST)), (5.0, 9.0));
        assert!((of(OVER_ALONE) - 1.5).abs() < 0.05);
        assert!(find(&rows, System::Alone, STEPS).is_none());
        assert!(find(&rows, System::Share, OVER_SHARE).is_none());
    }

    #[test]
    fn ratios_are_of_one_round_and_invalid_with_either() {
        let share = sample(1_000, Some(80.0), 0.5);
        let disturbed = Sample { others: 0.5, ..sample(9_000, Some(80.0), 0.5) };
        let rows = rows(vec![
            (System::Share, Ok(share)),
            (System::Nice, Ok(disturbed)),
            (System::Idle, Err("it ended".into())),
        ]);
        let nice = find(&rows, System::Nice, OVER_SHARE).unwrap();
        assert!(!nice.valid && (nice.value - 9.0).abs() < 0.3, "{nice:?}");
        let idle = find(&rows, System::Idle, OVER_SHARE).unwrap();
        assert!(!idle.valid && idle.note.contains("it ended"), "{idle:?}");
        assert!(find(&rows, System::Nice, OVER_ALONE).is_none(), "it was not measured");
    }
}
