//! Two threads that compute on one CPU, under `heddle run`: what the mechanisms cost at each quantum, and how late they
//! end a turn.

use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::options::{ProbesOptions, each_first};
use super::output::{self, Recorded, Worked};
use super::part::Part;
use super::run;
use super::setting::{Ending, Setting, WATCHED};
use super::variant::Variant;
use crate::posix::System;
use crate::posix::launch;
use crate::posix::process;
use crate::posix::rounds::attempts;
use crate::suite::{PartResult, Target};
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run};

/// CPU time of the process for the work.
pub(super) const TIME: &str = "cpu_ns";
/// The share of it by which it is above the time without preemption, in the same round.
pub(super) const LOST: &str = "throughput_lost";
/// What is above that time, for each preemption.
pub(super) const COST: &str = "per_preemption";
/// Preemptions of the work.
pub(super) const COUNT: &str = "preemptions";
/// By how much turns are longer than the quantum.
pub(super) const LATE: [(&str, f64); 2] = [("late_p50", 50.0), (LATE_P99, 99.0)];
/// The percentile that the target is about.
pub(super) const LATE_P99: &str = "late_p99";
/// The latest.
pub(super) const LATE_MAX: &str = "late_max";

/// The quantum whose cost has targets.
const COSTLY: Ns = Ns::from_us(5);
/// The p99 of lateness without what the machine took in turns.
pub(super) const NET_P99: &str = "net_p99";
/// What an interrupt, another process or the host took during turns, in per cent of the time.
pub(super) const STOLEN: &str = "stolen";
/// The largest share of it: a turn in a hundred is longer than it by far where more is taken.
const MOST_STOLEN: f64 = 0.1;

/// Most that a preemption may cost, looks at the clock in between included.
const MOST_COST: f64 = 150.0;
/// Most throughput lost, in per cent.
const MOST_LOST: f64 = 5.0;
/// Latest p99.
const MOST_LATE: f64 = 5_000.0;

/// Repeats of the work in a process; the least time counts.
const REPEATS: u64 = 5;
/// Steps for the first estimate.
const STEPS: u64 = 10_000_000;

/// The number of steps of a round.
pub(super) fn cases() -> u64 {
    (Setting::of_work().len() + Setting::of_turns().len()) as u64
}

/// Measures in interleaved rounds; returns the rows so far if `stop` is set.
///
/// # Errors
/// The program does not compile, or does not run at all.
pub(super) fn measure(
    options: &ProbesOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let steps = steps(options, stop)?;
    let (of_work, of_turns) = (Setting::of_work(), Setting::of_turns());
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        let mut turn = Vec::new();
        for &setting in each_first(&of_work, round) {
            show(progress, setting, round);
            match work(options, setting, steps, REPEATS, stop) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                worked => turn.push((setting, worked.map_err(|error| error.to_string()))),
            }
        }
        add_work(&mut collect, &turn);
        for &setting in each_first(&of_turns, round) {
            show(progress, setting, round);
            match watch(options, setting, stop) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                watched => {
                    add_turns(&mut collect, setting, &watched.map_err(|error| error.to_string()));
                }
            }
        }
    }
    let rows = collect.into_rows();
    Ok(PartResult { targets: targets(&rows), rows, ..PartResult::default() })
}

fn show(progress: &mut Progress, setting: Setting, round: u32) {
    let (ending, case) = (setting.ending, setting.case());
    progress.step(&format!("{}, round {}: {ending}, {case}", Part::Preempt, round + 1));
}

/// Why `heddle run` cannot run the program; `None` if it can.
pub(super) fn obstacle(options: &ProbesOptions) -> Option<String> {
    let compiler = options.compilers.first()?;
    let program = match options.builds.turns(&options.program, compiler, Variant::None) {
        Ok(program) => program,
        Err(error) => return Some(error.to_string()),
    };
    // A quantum that each mechanism supports, whichever the environment names.
    launch::refusal(&options.program, &System::Heddle("round-robin:quantum=1ms".into()), &program)
}

fn command(options: &ProbesOptions, setting: Setting, args: &[String]) -> io::Result<Command> {
    let none = || io::Error::other("no compiler");
    let compiler = options.compilers.first().ok_or_else(none)?;
    let program = options.builds.turns(&options.program, compiler, setting.ending.variant())?;
    let system = System::Heddle(setting.policy());
    let mut command = launch::command(&options.program, &system, &program, args);
    let mechanism = setting.ending.mechanism().name();
    command.env("HEDDLE_MECHANISM", mechanism).env("HEDDLE_PTHREAD_REPORT", "1");
    Ok(command)
}

/// Returns the steps of each thread with which all repeats take about the options' duration.
fn steps(options: &ProbesOptions, stop: &AtomicBool) -> io::Result<u64> {
    let none = Setting { ending: Ending::None, quantum: None };
    let first = work(options, none, STEPS, 1, stop)?;
    let wanted = options.duration.0 as f64 / REPEATS as f64;
    Ok((STEPS as f64 * wanted / first.cpu_ns.max(1.0)).max(1.0) as u64)
}

fn work(
    options: &ProbesOptions,
    setting: Setting,
    steps: u64,
    repeats: u64,
    stop: &AtomicBool,
) -> io::Result<Worked> {
    let args = ["work".to_owned(), steps.to_string(), repeats.to_string()];
    let output = run(options, command(options, setting, &args)?, stop)?;
    output::worked(&output.printed, &output.said).map_err(io::Error::other)
}

fn watch(options: &ProbesOptions, setting: Setting, stop: &AtomicBool) -> io::Result<Recorded> {
    let ms = (options.duration.0 / 1_000_000).max(20);
    let once = || {
        let args = ["watch".to_owned(), ms.to_string()];
        let mut command = command(options, setting, &args)?;
        // The worker alone has that CPU, as an operator would have it: the runtime's other threads wake up each
        // millisecond, and would make a turn in a hundred of 10 us longer.
        command.env("HEDDLE_CPUS", options.cpu.to_string());
        let output = process::run(command, &heddle_sys::thread::affinity()?, None, stop)?;
        output::recorded(&output.printed).map_err(io::Error::other)
    };
    attempts(options.tries, once, stolen)
}

/// Why lengths of turns must not be quoted.
fn stolen(watched: &Recorded) -> Option<String> {
    let share = watched.stolen;
    (share > MOST_STOLEN).then(|| format!("the machine took {:.1} % of the CPU", share * 100.0))
}

/// Adds one round of the work. Each figure compares with the work without preemption of the same round.
pub(super) fn add_work(collect: &mut Collector, turn: &[(Setting, Result<Worked, String>)]) {
    let none = turn.iter().find(|(setting, _)| setting.ending == Ending::None);
    let none = none.and_then(|(_, worked)| worked.as_ref().ok());
    for setting in Setting::of_work() {
        let Some((_, worked)) = turn.iter().find(|(of, _)| *of == setting) else { continue };
        let (system, case) = (setting.ending.name(), setting.case());
        let mut add = |metric, unit, run| collect.add(system, &case, metric, unit, run);
        let worked = match worked {
            Ok(worked) => worked,
            Err(why) => {
                add(TIME, "ns", Run::invalid(f64::NAN, why.clone()));
                continue;
            }
        };
        add(TIME, "ns", Run::ok(worked.cpu_ns));
        if setting.ending == Ending::None {
            continue;
        }
        add(COUNT, "", Run::ok(worked.preemptions));
        add(LOST, "%", lost(worked, none));
        add(COST, "ns", cost(worked, none));
    }
}

const NOT_COMPARED: &str = "no time without preemption";

fn lost(worked: &Worked, none: Option<&Worked>) -> Run {
    match none {
        Some(none) => Run::ok((1.0 - none.cpu_ns / worked.cpu_ns) * 100.0),
        None => Run::invalid(f64::NAN, NOT_COMPARED),
    }
}

fn cost(worked: &Worked, none: Option<&Worked>) -> Run {
    match none {
        Some(_) if worked.preemptions < 1.0 => Run::invalid(f64::NAN, "nothing was preempted"),
        Some(none) => Run::ok((worked.cpu_ns - none.cpu_ns) / worked.preemptions),
        None => Run::invalid(f64::NAN, NOT_COMPARED),
    }
}

/// Adds the turns of one run.
pub(super) fn add_turns(
    collect: &mut Collector,
    setting: Setting,
    watched: &Result<Recorded, String>,
) {
    let (system, case) = (setting.ending.name(), setting.case());
    let watched = match watched {
        Ok(watched) => watched,
        Err(why) => {
            let run = Run::invalid(f64::NAN, why.clone());
            return collect.add(system, &case, LATE_P99, "ns", run);
        }
    };
    let (turns, quantum) = (&watched.whole, setting.quantum.unwrap_or(Ns::ZERO));
    let run = |length: Ns| match turns.is_empty() {
        true => Run::invalid(f64::NAN, "no turn ended"),
        // The last time that a turn has noted is before its end, so that it may seem too short.
        false => Run { value: length.0 as f64 - quantum.0 as f64, invalid: stolen(watched) },
    };
    for (metric, percent) in LATE {
        collect.add(system, &case, metric, "ns", run(turns.percentile(percent)));
    }
    collect.add(system, &case, LATE_MAX, "ns", run(turns.max()));
    collect.add(system, &case, NET_P99, "ns", run(watched.times.p99()));
    collect.add(system, &case, STOLEN, "%", Run::ok(watched.stolen * 100.0));
}

/// The targets of probes, and that the control misses the one about lateness.
pub(super) fn targets(rows: &[Row]) -> Vec<Target> {
    let at = |quantum| Setting { ending: Ending::Probe, quantum: Some(quantum) }.case();
    let find = |ending: Ending, case: &str, metric: &str| {
        let same =
            |row: &&Row| row.system == ending.name() && row.case == case && row.metric == metric;
        rows.iter().find(same)
    };
    let (costly, watched) = (at(COSTLY), at(WATCHED));
    let of = |what: &str, case: &str, metric, most| {
        let row = find(Ending::Probe, case, metric)?;
        Some(Target::at_most(&format!("probe, {case}: {what}"), row, most))
    };
    let control = find(Ending::Control, &watched, LATE_P99).map(|row| {
        let what =
            format!("control without probes, {watched}: p99 of lateness, which must miss it");
        Target::at_least(&what, row, MOST_LATE)
    });
    let ours = [
        of("CPU time lost for each preemption", &costly, COST, MOST_COST),
        of("throughput lost", &costly, LOST, MOST_LOST),
        of("p99 of lateness", &watched, LATE_P99, MOST_LATE),
    ];
    ours.into_iter().chain([control]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Histogram;

    fn probe(us: u64) -> Setting {
        Setting { ending: Ending::Probe, quantum: Some(Ns::from_us(us)) }
    }

    const NONE: Setting = Setting { ending: Ending::None, quantum: None };

    fn worked(cpu_ns: f64, preemptions: f64) -> Result<Worked, String> {
        Ok(Worked { cpu_ns, preemptions })
    }

    fn work_rows(turn: &[(Setting, Result<Worked, String>)]) -> Vec<Row> {
        let mut collect = Collector::new();
        add_work(&mut collect, turn);
        collect.into_rows()
    }

    fn row<'a>(rows: &'a [Row], ending: Ending, metric: &str) -> &'a Row {
        let same = |row: &&Row| row.system == ending.name() && row.metric == metric;
        rows.iter().find(same).unwrap_or_else(|| panic!("no {ending} {metric}"))
    }

    #[test]
    fn losses_are_held_against_the_work_without_preemption() {
        let turn = [(probe(5), worked(1000.0, 2.0)), (NONE, worked(900.0, 0.0))];
        let rows = work_rows(&turn);
        assert!((row(&rows, Ending::Probe, LOST).value - 10.0).abs() < 1e-9);
        assert_eq!(row(&rows, Ending::Probe, COST).value, 50.0);
        assert_eq!(row(&rows, Ending::Probe, COUNT).value, 2.0);
        let lines: Vec<String> = targets(&rows).iter().map(Target::line).collect();
        assert!(lines[0].contains("each preemption") && lines[0].ends_with("reached"), "{lines:?}");
        assert!(lines[1].contains("throughput") && lines[1].ends_with("MISSED"), "{lines:?}");
    }

    #[test]
    fn what_was_not_preempted_or_not_compared_has_no_cost() {
        let rows = work_rows(&[(probe(5), worked(1000.0, 0.0)), (NONE, worked(900.0, 0.0))]);
        assert!(row(&rows, Ending::Probe, COST).note.contains("nothing was preempted"));
        let rows = work_rows(&[(probe(5), worked(1000.0, 9.0)), (NONE, Err("broken".into()))]);
        for metric in [LOST, COST] {
            assert!(row(&rows, Ending::Probe, metric).note.contains(NOT_COMPARED));
        }
        assert!(row(&rows, Ending::None, TIME).note.contains("broken"));
    }

    fn turn_rows(ending: Ending, lengths_us: &[u64], stolen: f64) -> Vec<Row> {
        let mut times = Histogram::new();
        times.extend(lengths_us.iter().map(|&us| Ns::from_us(us)));
        let setting = Setting { ending, quantum: Some(WATCHED) };
        let mut collect = Collector::new();
        add_turns(
            &mut collect,
            setting,
            &Ok(Recorded { whole: times.clone(), times, lost: 0.0, stolen }),
        );
        collect.into_rows()
    }

    /// Invariant I5.
    #[test]
    fn turns_are_late_beyond_the_quantum_and_the_control_must_be() {
        let mut rows = turn_rows(Ending::Probe, &[10, 11, 12], 0.0);
        let late = row(&rows, Ending::Probe, "late_p50").value;
        assert!((990.0..1020.0).contains(&late), "{late}");
        rows.extend(turn_rows(Ending::Control, &[110, 130], 0.0));
        assert!(targets(&rows).iter().all(|target| target.reached), "{:?}", targets(&rows));
        let prompt = turn_rows(Ending::Control, &[10, 11], 0.0);
        let line = targets(&prompt)[0].line();
        assert!(line.starts_with("control") && line.ends_with("MISSED"), "{line}");
    }

    #[test]
    fn lateness_of_a_machine_that_took_the_cpu_or_without_turns_is_invalid() {
        for rows in [turn_rows(Ending::Probe, &[10], 0.6), turn_rows(Ending::Probe, &[], 0.0)] {
            let mut late = rows.iter().filter(|row| row.metric.starts_with("late_"));
            assert!(late.all(|row| !row.valid), "{rows:?}");
        }
    }
}
