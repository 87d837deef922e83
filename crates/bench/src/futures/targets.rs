//! Targets: one worker, ratios within a run.

use super::micro::{self, BYTES, TOTAL};
use super::options::{AsyncOptions, HALF};
use super::part::Part;
use super::service::{self, KEPT, OVER_EIGHT, OVER_TOKIO, P50};
use super::workload::Workload;
use super::{Op, System};
use crate::suite::Target;
use heddle_metrics::Row;

/// Most CPU nanoseconds of an operation.
const OPERATIONS: [(System, Op, f64); 5] = [
    (System::WorkStealing, Op::SpawnAwait, 75.0),
    (System::TwoQueue, Op::SpawnAwait, 100.0),
    (System::WorkStealing, Op::SpawnBatch, 75.0),
    (System::WorkStealing, Op::Yield, 30.0),
    (System::WorkStealing, Op::Wake, 45.0),
];
/// Most bytes of an idle task with 64 bytes of state, that state included.
const IDLE: f64 = 224.0;
/// Most memory of a million such tasks, in MB.
const MILLION: f64 = 300.0;

/// A bound for a ratio.
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}
use Bound::{AtLeast, AtMost};

/// Ratios at half load.
const RATIOS: [(Part, &str, &str, Bound); 6] = [
    (Part::OneMs, OVER_TOKIO, "tokio's p99 of short requests over", AtLeast(4.0)),
    (Part::OneMs, OVER_EIGHT, "that of tokio with 8 workers over", AtLeast(4.0)),
    (Part::TenMs, OVER_TOKIO, "tokio's p99 of short requests over", AtLeast(20.0)),
    (Part::TenMs, OVER_EIGHT, "that of tokio with 8 workers over", AtLeast(4.0)),
    (Part::Blocking, P50, "p50 of short requests over tokio's of", AtMost(1.2)),
    (Part::Blocking, OVER_TOKIO, "tokio's p99 of short requests over", AtLeast(1.0)),
];
/// The least share of tokio's throughput.
const THROUGHPUT: f64 = 0.97;

fn find<'a>(rows: &'a [Row], system: System, case: &str, metric: &str) -> Option<&'a Row> {
    let same =
        |row: &&Row| (&*row.system, &*row.case, &*row.metric) == (system.name(), case, metric);
    rows.iter().find(same)
}

pub(super) fn operations(rows: &[Row]) -> Vec<Target> {
    let of = |(system, op, most): (System, Op, f64)| {
        let row = find(rows, system, op.name(), micro::CPU)?;
        Some(Target::at_most(&format!("micro: {op} of {system}"), row, most))
    };
    OPERATIONS.into_iter().filter_map(of).collect()
}

pub(super) fn memory(options: &AsyncOptions, rows: &[Row]) -> Vec<Target> {
    let [few, many] = options.idle;
    let of = |count, metric, what: &str, most| {
        let row = find(rows, System::WorkStealing, &micro::idle(count), metric)?;
        Some(Target::at_most(&format!("memory: {what}"), row, most))
    };
    let each = of(few, BYTES, "an idle task with 64 bytes of state", IDLE);
    // The bound is of so many.
    let all = of(many, TOTAL, "1,000,000 idle tasks", MILLION).filter(|_| many == 1_000_000);
    each.into_iter().chain(all).collect()
}

/// Ratios at half load; none if that was not measured.
pub(super) fn tails(part: Part, workload: &Workload, rows: &[Row]) -> Vec<Target> {
    let rate = workload.capacity() * HALF;
    let near = |row: &&Row| row.load.is_some_and(|at| (at / rate - 1.0).abs() < 1e-6);
    let here: Vec<Row> = rows.iter().filter(near).cloned().collect();
    let case = service::short(part);
    let of = |(_, metric, what, bound): &(Part, &str, &str, Bound)| {
        let row = find(&here, System::CHIEF, &case, metric)?;
        let what = format!("{part} at {:.0} %: {what} {}", HALF * 100.0, System::CHIEF);
        Some(match *bound {
            AtLeast(least) => Target::at_least(&what, row, least),
            AtMost(most) => Target::at_most(&what, row, most),
        })
    };
    RATIOS.iter().filter(|ratio| ratio.0 == part).filter_map(of).collect()
}

pub(super) fn saturation(rows: &[Row]) -> Vec<Target> {
    let chief = System::CHIEF;
    let row = find(rows, chief, &service::short(Part::Saturation), KEPT);
    let what = format!("saturation: {chief}'s throughput over tokio's");
    row.map(|row| Target::at_least(&what, row, THROUGHPUT)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    fn row(system: System, case: &str, metric: &str, unit: &str, value: f64) -> Row {
        Row::from_runs(system.name(), case, metric, unit, &[Run::ok(value)])
    }

    #[test]
    fn an_operation_is_compared_with_the_bound_of_its_policy() {
        let rows = [
            row(System::WorkStealing, "spawn_await", micro::CPU, "ns", 80.0),
            row(System::TwoQueue, "spawn_await", micro::CPU, "ns", 80.0),
            row(System::Tokio, "spawn_await", micro::CPU, "ns", 10.0),
        ];
        let lines: Vec<String> = operations(&rows).iter().map(Target::line).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("heddle-work-stealing") && lines[0].ends_with("MISSED"));
        assert!(lines[1].contains("heddle-two-queue") && lines[1].ends_with("reached"));
    }

    #[test]
    fn memory_of_a_million_tasks_is_bounded_only_if_they_are_so_many() {
        let cpus = crate::kv::Cpus { server: vec![0], load: 0, shared: true };
        let reached = |quick| {
            let options = AsyncOptions::new(&System::ALL, cpus.clone(), quick);
            let [few, many] = options.idle.map(micro::idle);
            let rows = [
                row(System::WorkStealing, &few, BYTES, "B", 224.0),
                row(System::WorkStealing, &many, TOTAL, "MB", 301.0),
            ];
            memory(&options, &rows).iter().map(|target| target.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(false), [true, false]);
        assert_eq!(reached(true), [true]);
    }

    #[test]
    fn ratios_are_stated_at_half_load_and_invalid_ones_are_not_quoted() {
        let workload = Workload::of(Part::Blocking).unwrap();
        let case = service::short(Part::Blocking);
        let at = |load: f64, metric: &str, run: Run| {
            let row = Row::from_runs(System::CHIEF.name(), &case, metric, "x", &[run]);
            row.with_load(workload.capacity() * load)
        };
        let rows = [
            at(0.3, P50, Run::ok(9.0)),
            at(0.5, P50, Run::ok(1.1)),
            at(0.5, OVER_TOKIO, Run::invalid(2.0, "late")),
        ];
        let targets = tails(Part::Blocking, &workload, &rows);
        assert_eq!(targets.len(), 2);
        assert!(targets[0].line().ends_with("1.10 times: reached"), "{}", targets[0].line());
        assert!(targets[1].line().ends_with("invalid, do not quote"), "{}", targets[1].line());
        assert!(tails(Part::Blocking, &workload, &rows[..1]).is_empty());
        assert!(tails(Part::TenMs, &Workload::of(Part::TenMs).unwrap(), &rows).is_empty());
    }

    #[test]
    fn the_throughput_may_be_three_per_cent_below_tokios() {
        let case = service::short(Part::Saturation);
        let of = |kept| saturation(&[row(System::CHIEF, &case, KEPT, "x", kept)])[0].reached;
        assert_eq!((of(0.97), of(0.96)), (true, false));
    }
}
