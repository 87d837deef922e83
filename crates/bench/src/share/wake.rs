//! How late a latency-critical program wakes up beside a batch program that has its CPU.

use super::batch::Batch;
use super::child::{Job, Sleeper, Woken};
use super::command;
use super::launch;
use super::options::{CRITICAL_POLICY, ShareOptions};
use super::part::Part;
use super::rounds::{self, Method};
use super::setup::Share;
use super::system::System;
use crate::posix::programs::Program;
use crate::posix::rounds::{busy_others, compared};
use heddle_metrics::{Collector, Progress, Row, Run};
use std::io;
use std::sync::atomic::AtomicBool;

/// The case in results.
pub(super) const CASE: &str = "wake";
/// The lateness below which 99 % of the wake-ups are.
pub(super) const P99: &str = "p99";
/// What half of the waits for the CPU do not exceed, by a factor of two.
pub(super) const WAIT_P50: &str = "wait_p50";
/// The same for 99 %.
pub(super) const WAIT_P99: &str = "wait_p99";
pub(super) use super::colocated::{LONGEST, OVER_ALONE, WAIT};

/// What was measured, and the CPU time of others, as a share of one CPU.
type Measured = (Woken, f64);
type Turn = rounds::Turn<Measured>;

/// Measures; returns the rows so far if `stop` is set.
///
/// # Errors
/// Never: a program that fails gives an invalid row.
pub(super) fn run(
    options: &ShareOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let method = Method { once, disturbed, add };
    Ok(rounds::rows(options, (Part::Wake, options.rounds), &method, stop, progress))
}

fn once(options: &ShareOptions, system: System, stop: &AtomicBool) -> io::Result<Measured> {
    let cpus = (options.cpu(), options.cpus.load);
    let start = |realtime| Share::start(&options.program, cpus, realtime, stop);
    let share = command::realtime(system).map(start).transpose()?;
    let batch = match &share {
        Some(share) => {
            let program = options.programs.path(Program::Batch)?;
            let (command, placement) = command::batch(options, system, Some(share), &program);
            Some(Batch::start(command, &placement)?)
        }
        None => None,
    };
    let sleeper = Sleeper {
        cpu: options.cpu(),
        time_ns: options.duration.0,
        steps_per_us: options.speed(),
        policy: CRITICAL_POLICY.into(),
        program: options.program.clone(),
        share: share.as_ref().map(|share| (share.file(), share.socket())),
    };
    let ours: Vec<u32> = share.iter().map(Share::pid).chain(batch.iter().map(Batch::pid)).collect();
    launch::measure(options, &Job::Wake(sleeper), &ours, stop)
}

fn invalid((woken, others): &Measured) -> Option<String> {
    let empty = woken.late.is_empty().then(|| "it never woke up".to_owned());
    empty.or_else(|| busy_others(*others))
}

fn disturbed(measured: &Measured) -> Option<String> {
    busy_others(measured.1)
}

fn figure(measured: &Result<Measured, String>, of: impl Fn(&Woken) -> f64) -> Run {
    match measured {
        Ok(measured) => Run { value: of(&measured.0), invalid: invalid(measured) },
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

fn tail(woken: &Woken) -> f64 {
    woken.late.p99().0 as f64
}

/// Returns a time that so many per cent of the waits do not exceed: a power of two less one.
fn wait_percentile(waits: &[u64], percent: u64) -> Option<f64> {
    let all: u64 = waits.iter().sum();
    let wanted = (all * percent).div_ceil(100);
    let mut below = 0;
    let class = waits.iter().position(|count| {
        below += count;
        below >= wanted
    })?;
    (all > 0).then_some((1_u64 << class) as f64 - 1.0)
}

fn add(collect: &mut Collector, turn: &Turn) {
    let alone = turn.iter().find(|(system, _)| *system == System::Alone).map(|(_, run)| run);
    for (system, measured) in turn {
        let name = system.name();
        match measured {
            Ok(sample) => {
                let why = invalid(sample);
                let mut at = collect.without_load();
                at.latency(name, CASE, &sample.0.late, why.as_deref());
                for (metric, percent) in [(WAIT_P50, 50), (WAIT_P99, 99)] {
                    if let Some(most) = wait_percentile(&sample.0.waits, percent) {
                        collect.add(name, CASE, metric, "ns", figure(measured, |_| most));
                    }
                }
                if let Some((mean, longest)) = sample.0.waits_ns {
                    collect.add(name, CASE, WAIT, "ns", figure(measured, |_| mean));
                    collect.add(name, CASE, LONGEST, "ns", figure(measured, |_| longest));
                }
            }
            Err(_) => collect.add(name, CASE, P99, "ns", figure(measured, tail)),
        }
        if let Some(alone) = alone.filter(|_| system.has_batch()) {
            let ratio = |ours, alone| ours / alone;
            let ratio = compared(ratio, figure(measured, tail), figure(alone, tail));
            collect.add(name, CASE, OVER_ALONE, "x", ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;

    fn woken(ns: u64, waits_ns: Option<(f64, f64)>) -> Result<Measured, String> {
        let mut woken = Woken { waits_ns, ..Woken::default() };
        woken.late.record_n(Ns(ns), 100);
        Ok((woken, 0.0))
    }

    #[test]
    fn a_percentile_of_waits_is_the_end_of_its_class() {
        let mut waits = [0; 32];
        (waits[10], waits[12], waits[16]) = (60, 38, 2);
        assert_eq!(wait_percentile(&waits, 50), Some(1023.0));
        assert_eq!(wait_percentile(&waits, 98), Some(4095.0));
        assert_eq!(wait_percentile(&waits, 99), Some(65535.0));
        assert_eq!(wait_percentile(&[0; 32], 50), None);
        assert_eq!(wait_percentile(&[], 50), None);
    }

    #[test]
    fn lateness_is_compared_with_that_of_the_program_alone() {
        let mut collect = Collector::new();
        let turn = vec![
            (System::Alone, woken(10_000, None)),
            (System::Share, woken(20_000, Some((7.0, 9.0)))),
            (System::ShareOrdinary, Ok((Woken::default(), 0.0))),
        ];
        add(&mut collect, &turn);
        let rows = collect.into_rows();
        let of = |system: System, metric| {
            let same = |row: &&Row| row.system == system.name() && row.metric == metric;
            rows.iter().find(same).unwrap()
        };
        assert!((of(System::Share, OVER_ALONE).value - 2.0).abs() < 0.05);
        assert_eq!(of(System::Share, LONGEST).value, 9.0);
        assert!(of(System::Share, P99).valid);
        assert!(of(System::ShareOrdinary, OVER_ALONE).note.contains("never woke up"));
    }
}
