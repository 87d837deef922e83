//! A switch between two applications on one CPU, in interleaved rounds.

use super::child::{Job, Pair, Switched};
use super::command;
use super::launch;
use super::options::ShareOptions;
use super::part::Part;
use super::rounds::{self, Method};
use super::setup::Share;
use super::system::System;
use crate::posix::rounds::{busy_others, compared};
use heddle_metrics::{Collector, Progress, Row, Run};
use std::io;
use std::sync::atomic::AtomicBool;

/// The case in results.
pub(super) const CASE: &str = "switch";
/// Wall time of a switch, one way.
pub(super) const SWITCH: &str = "ns_per_switch";
/// The same divided by that of two processes that wake each other through a futex, of the same round.
pub(super) const OF_FUTEX: &str = "of_futex";
/// Hand-overs that broke the Single Binding Rule.
pub(super) const BROKEN: &str = "broken";
/// The same in per cent of all.
pub(super) const BROKEN_SHARE: &str = "broken_percent";
/// What Skyloft's paper measured (section 5.4 and table 7), on other machines.
pub(super) const PUBLISHED: &str = "Skyloft (SOSP '24), on its machine: 1,905 ns by its kernel module; Linux 1,124 ns \
                                    with both runnable, 2,471 ns with a wake-up.";

type Turn = rounds::Turn<Switched>;

/// Measures; returns the rows so far if `stop` is set.
///
/// # Errors
/// Never: a process that fails gives an invalid row.
pub(super) fn run(
    options: &ShareOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let method = Method { once, disturbed, add };
    Ok(rounds::rows(options, (Part::Switch, options.switch_rounds), &method, stop, progress))
}

fn once(options: &ShareOptions, system: System, stop: &AtomicBool) -> io::Result<Switched> {
    let cpus = (options.cpu(), options.cpus.load);
    let start = |realtime| Share::start(&options.program, cpus, realtime, stop);
    let share = command::realtime(system).map(start).transpose()?;
    let ours: Vec<u32> = share.iter().map(Share::pid).chain([std::process::id()]).collect();
    let pair = Pair {
        system,
        cpu: options.cpu(),
        switches: options.switches,
        program: options.program.clone(),
        share: share.as_ref().map(|share| (share.file(), share.socket())),
        ours: ours.clone(),
    };
    // The process itself knows which others belong to it.
    launch::measure(options, &Job::Switch(pair), &ours, stop).map(|(switched, _)| switched)
}

fn disturbed(switched: &Switched) -> Option<String> {
    busy_others(switched.others)
}

fn figure(measured: &Result<Switched, String>, of: impl Fn(&Switched) -> f64) -> Run {
    match measured {
        Ok(switched) => Run { value: of(switched), invalid: disturbed(switched) },
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

fn each(switched: &Switched) -> f64 {
    switched.ns as f64 / switched.switches.max(1) as f64
}

fn add(collect: &mut Collector, turn: &Turn) {
    let futex = turn.iter().find(|(system, _)| *system == System::Futex).map(|(_, run)| run);
    for (system, measured) in turn {
        let name = system.name();
        collect.add(name, CASE, SWITCH, "ns", figure(measured, each));
        if let Some(futex) = futex.filter(|_| *system != System::Futex) {
            let ratio = |ours, futex| ours / futex;
            let ratio = compared(ratio, figure(measured, each), figure(futex, each));
            collect.add(name, CASE, OF_FUTEX, "x", ratio);
        }
        // A count, which others do not falsify.
        let Ok(Switched { broken: Some(broken), switches, .. }) = measured else { continue };
        let (broken, switches) = (*broken as f64, (*switches).max(1) as f64);
        collect.add(name, CASE, BROKEN, "", Run::ok(broken));
        collect.add(name, CASE, BROKEN_SHARE, "%", Run::ok(broken * 100.0 / switches));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(ns: u64, broken: Option<u64>) -> Result<Switched, String> {
        Ok(Switched { switches: 1_000, ns, broken, others: 0.0 })
    }

    #[test]
    fn a_switch_costs_the_time_of_all_divided_by_their_number() {
        let mut collect = Collector::new();
        let turn = vec![
            (System::ShareYield, switched(800_000, Some(0))),
            (System::ShareOrdinary, switched(1_600_000, Some(400))),
            (System::Futex, switched(1_600_000, None)),
            (System::Pipe, Err("a peer ended early".into())),
        ];
        add(&mut collect, &turn);
        let rows = collect.into_rows();
        let of = |system: System, metric| {
            let same = |row: &&Row| row.system == system.name() && row.metric == metric;
            rows.iter().find(same)
        };
        assert_eq!(of(System::ShareYield, SWITCH).unwrap().value, 800.0);
        assert_eq!(of(System::ShareYield, OF_FUTEX).unwrap().value, 0.5);
        assert_eq!(of(System::ShareYield, BROKEN).unwrap().value, 0.0);
        assert_eq!(of(System::ShareOrdinary, BROKEN_SHARE).unwrap().value, 40.0);
        assert!(of(System::Futex, BROKEN).is_none() && of(System::Futex, OF_FUTEX).is_none());
        assert!(!of(System::Pipe, SWITCH).unwrap().valid);
    }
}
