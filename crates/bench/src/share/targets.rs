//! Targets: switches, tails at half load, what the batch program keeps, wake-ups.

use super::colocated::{OF_LEFT, OVER_ALONE, OVER_SHARE, part_case};
use super::options::HALF;
use super::part::Part;
use super::switch::{self, BROKEN, SWITCH};
use super::system::System;
use super::wake;
use crate::suite::Target;
use heddle_metrics::Row;

/// Most nanoseconds of a switch.
const SWITCHES: [(System, f64); 2] = [(System::ShareYield, 900.0), (System::ShareFutex, 1_800.0)];
/// How many times the p99 of the server alone it may be in a share, at half load.
const MOST_OVER_ALONE: f64 = 1.5;
/// How many times higher the kernel's p99 must be.
const LEAST_OVER_SHARE: f64 = 5.0;
/// The systems of which that is said.
const BY_KERNEL: [System; 2] = [System::Nice, System::Cgroup];
/// The least per cent of what the server leaves that the batch program has.
const LEAST_OF_LEFT: f64 = 90.0;
/// Most nanoseconds by which 99 % of wake-ups are late.
const LATEST: f64 = 50_000.0;

fn find<'a>(rows: &'a [Row], system: System, case: &str, metric: &str) -> Option<&'a Row> {
    let same =
        |row: &&Row| (&*row.system, &*row.case, &*row.metric) == (system.name(), case, metric);
    rows.iter().find(same)
}

pub(super) fn switches(rows: &[Row]) -> Vec<Target> {
    let of = |(system, most): (System, f64)| {
        let cost = find(rows, system, switch::CASE, SWITCH)
            .map(|row| Target::at_most(&format!("switch: {system}"), row, most));
        let what = format!("switch: hand-overs of {system} that broke the Single Binding Rule");
        let broken = find(rows, system, switch::CASE, BROKEN)
            .map(|row| Target::never_above(&what, row, 0.0));
        cost.into_iter().chain(broken)
    };
    SWITCHES.into_iter().flat_map(of).collect()
}

/// Those at half load; none if that was not measured.
pub(super) fn colocated(part: Part, capacity: f64, rows: &[Row]) -> Vec<Target> {
    let rate = capacity * HALF;
    let near = |row: &&Row| row.load.is_some_and(|at| (at / rate - 1.0).abs() < 1e-6);
    let here: Vec<Row> = rows.iter().filter(near).cloned().collect();
    let row = |system, metric| find(&here, system, part_case(part), metric);
    let at = format!("{part} at {:.0} %", HALF * 100.0);
    let tail = row(System::Share, OVER_ALONE).map(|row| {
        let what = format!("{at}: the server's p99 in the share over its p99 alone");
        Target::at_most(&what, row, MOST_OVER_ALONE)
    });
    let by_kernel = BY_KERNEL.into_iter().filter_map(|system| {
        let what = format!("{at}: p99 of {system} over the share's");
        Some(Target::at_least(&what, row(system, OVER_SHARE)?, LEAST_OVER_SHARE))
    });
    let left = row(System::Share, OF_LEFT).map(|row| {
        let what = format!("{at}: what the batch program has of what the server leaves");
        Target::at_least(&what, row, LEAST_OF_LEFT)
    });
    tail.into_iter().chain(by_kernel).chain(left).collect()
}

pub(super) fn wake_ups(rows: &[Row]) -> Vec<Target> {
    let what = "wake: p99 of the lateness in the share";
    let row = find(rows, System::Share, wake::CASE, wake::P99);
    row.map(|row| Target::at_most(what, row, LATEST)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    fn row(system: System, case: &str, metric: &str, unit: &str, value: f64) -> Row {
        Row::from_runs(system.name(), case, metric, unit, &[Run::ok(value)])
    }

    #[test]
    fn one_broken_hand_over_is_too_many() {
        let rows = [
            row(System::ShareYield, switch::CASE, SWITCH, "ns", 850.0),
            row(System::ShareYield, switch::CASE, BROKEN, "", 1.0),
            row(System::ShareFutex, switch::CASE, SWITCH, "ns", 1_900.0),
            row(System::ShareFutex, switch::CASE, BROKEN, "", 0.0),
            row(System::ShareOrdinary, switch::CASE, BROKEN, "", 400.0),
        ];
        let reached: Vec<bool> = switches(&rows).iter().map(|target| target.reached).collect();
        assert_eq!(reached, [true, false, false, true]);
    }

    #[test]
    fn targets_of_servers_are_stated_at_half_load_only() {
        let case = part_case(Part::Service);
        let at = |load: f64, system, metric, unit, value| {
            row(system, case, metric, unit, value).with_load(1_000.0 * load)
        };
        let rows = [
            at(0.5, System::Share, OVER_ALONE, "x", 1.4),
            at(0.5, System::Nice, OVER_SHARE, "x", 4.0),
            at(0.5, System::Share, OF_LEFT, "%", 93.0),
            at(0.3, System::Cgroup, OVER_SHARE, "x", 9.0),
            at(0.5, System::Idle, OVER_SHARE, "x", 1.0),
        ];
        let targets = colocated(Part::Service, 1_000.0, &rows);
        let reached: Vec<bool> = targets.iter().map(|target| target.reached).collect();
        assert_eq!(reached, [true, false, true], "{targets:?}");
        assert!(colocated(Part::Memcached, 1_000.0, &rows).is_empty());
    }

    #[test]
    fn a_wake_up_may_be_fifty_microseconds_late() {
        let of = |ns| wake_ups(&[row(System::Share, wake::CASE, wake::P99, "ns", ns)])[0].reached;
        assert_eq!((of(50_000.0), of(60_000.0)), (true, false));
    }
}
