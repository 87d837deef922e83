//! Single operations, and memory of idle tasks, in interleaved rounds.

use super::child::{Job, Memory, STATE};
use super::launch::{Measured, measure};
use super::options::AsyncOptions;
use super::part::Part;
use super::{Op, System};
use heddle_metrics::{Collector, Progress, Row, Run};
use std::io;
use std::sync::atomic::AtomicBool;

/// The metric of every operation.
pub(super) const CPU: &str = "cpu_ns_per_op";
/// Bytes of an idle task with its future.
pub(super) const BYTES: &str = "bytes_per_task";
/// The same without the future's state.
pub(super) const BESIDE: &str = "bytes_beside_state";
/// The memory of all tasks.
pub(super) const TOTAL: &str = "memory";
/// CPU time to create all.
pub(super) const SPAWN: &str = "spawn_time";
/// CPU time to drop all.
pub(super) const DROP: &str = "drop_time";

/// Threads are measured in smaller numbers: each has a stack.
const MOST_THREADS: u64 = 10_000;

/// Measures the operations; returns the rows so far if `stop` is set.
///
/// # Errors
/// Never: a process that fails gives an invalid row.
pub(super) fn operations(
    options: &AsyncOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    'all: for round in 0..options.micro_rounds {
        for op in Op::ALL {
            for system in options.turns(Part::Micro, round) {
                progress.step(&format!("round {}: {system} {op}", round + 1));
                let job = Job::Micro { system, op, budget_ns: options.budget.0 };
                let run = match measure::<f64>(options, &job, &[options.server()], stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    Err(error) => Run::invalid(f64::NAN, error.to_string()),
                    Ok(measured) => Run::ok(measured.figures),
                };
                collect.add(system.name(), op.name(), CPU, "ns", run);
            }
        }
    }
    Ok(in_order(options, collect))
}

/// The case of `count` idle tasks.
pub(super) fn idle(count: u64) -> String {
    format!("idle-{count}")
}

/// How many idle tasks a system has where `count` are asked for; `None` if it is not measured.
fn tasks(options: &AsyncOptions, system: System, count: u64) -> Option<u64> {
    match system {
        System::Threads => (count == options.idle[0]).then_some(count.min(MOST_THREADS)),
        _ => Some(count),
    }
}

/// Measures the memory of idle tasks; returns the rows so far if `stop` is set.
///
/// # Errors
/// Never: a process that fails gives an invalid row.
pub(super) fn memory(
    options: &AsyncOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    'all: for round in 0..options.micro_rounds {
        for count in options.idle {
            for system in options.turns(Part::Memory, round) {
                progress.step(&format!("round {}: {system}, {count} idle tasks", round + 1));
                let Some(tasks) = tasks(options, system, count) else { continue };
                let job = Job::Memory { system, count: tasks };
                let measured = match measure(options, &job, &[options.server()], stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    measured => measured.map_err(|error| error.to_string()),
                };
                add(&mut collect, system, count, tasks, &measured);
            }
        }
    }
    Ok(in_order(options, collect))
}

fn add(
    collect: &mut Collector,
    system: System,
    count: u64,
    tasks: u64,
    measured: &Result<Measured<Memory>, String>,
) {
    let (name, case) = (system.name(), idle(count));
    let mut add = |metric, unit, run| collect.add(name, &case, metric, unit, run);
    match measured {
        Err(why) => add(BYTES, "B", Run::invalid(f64::NAN, why.clone())),
        Ok(Measured { figures, .. }) => {
            let each = figures.bytes as f64 / tasks as f64;
            add(BYTES, "B", Run::ok(each));
            add(BESIDE, "B", Run::ok(each - STATE as f64));
            add(TOTAL, "MB", Run::ok(figures.bytes as f64 / 1e6));
            add(SPAWN, "ns", Run::ok(figures.spawn_ns as f64));
            if let Some(ns) = figures.drop_ns {
                add(DROP, "ns", Run::ok(ns as f64));
            }
        }
    }
}

/// Sorts by system, since another is first in each round.
pub(super) fn in_order(options: &AsyncOptions, collect: Collector) -> Vec<Row> {
    let mut rows = collect.into_rows();
    rows.sort_by_key(|row| options.systems.iter().position(|system| system.name() == row.system));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_stated_with_the_state_and_without() {
        let mut collect = Collector::new();
        let figures = Memory { bytes: 224_000, spawn_ns: 5, drop_ns: Some(6) };
        let ok = Ok(Measured { figures, others: 0.0 });
        add(&mut collect, System::WorkStealing, 1_000, 1_000, &ok);
        add(&mut collect, System::Smol, 1_000, 1_000, &Err("not done after 60 s".into()));
        let rows = collect.into_rows();
        let of = |metric| rows.iter().find(|row| row.metric == metric).unwrap();
        assert_eq!((of(BYTES).value, of(BESIDE).value), (224.0, 160.0));
        assert_eq!((of(TOTAL).value, of(DROP).value), (0.224, 6.0));
        let failed = rows.iter().find(|row| row.system == "smol").unwrap();
        assert!(!failed.valid && failed.note.contains("not done"), "{failed:?}");
    }
}
