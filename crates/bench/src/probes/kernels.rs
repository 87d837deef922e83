//! The slowdown of kernels that nothing preempts: each variant beside the one without probes.

use std::io;
use std::sync::atomic::AtomicBool;

use super::compiler::Compiler;
use super::options::ProbesOptions;
use super::output::{Timing, kernel_runs};
use super::part::Part;
use super::run;
use super::slowdown::{MEAN, MOST_SLOWDOWN, SLOWDOWN, add, mean, turn};
use super::sources::{KERNELS, Kernel};
use super::variant::Variant;
use crate::posix::rounds::compared;
use crate::suite::{PartResult, Target};
use heddle_metrics::{Collector, Progress, Row, Run};

/// The slowdown of all kernels together, divided by that of naive placement in the same round.
pub(super) const OF_NAIVE: &str = "of_naive";

/// The largest share of naive placement's slowdown.
const MOST_OF_NAIVE: f64 = 0.25;

/// Measures in interleaved rounds; returns the rows so far if `stop` is set.
///
/// # Errors
/// None of its own: a variant that does not compile or run is an invalid run.
pub(super) fn measure(
    options: &ProbesOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        for compiler in &options.compilers {
            let mut ratios = Vec::new();
            for kernel in &KERNELS {
                let case = format!("{}, {}", compiler.name, kernel.name);
                progress.step(&format!("{}, round {}: {case}", Part::Kernels, round + 1));
                let once = |variant| once(options, compiler, kernel, variant, stop);
                let Ok(turn) = turn(&Variant::ALL, round, once) else { break 'all };
                let system = |variant| system(compiler, variant);
                ratios.extend(add(&mut collect, system, kernel.name, &turn));
            }
            add_means(&mut collect, compiler, &ratios);
        }
    }
    let rows = collect.into_rows();
    Ok(PartResult { targets: targets(&options.compilers, &rows), rows, ..PartResult::default() })
}

fn once(
    options: &ProbesOptions,
    compiler: &Compiler,
    kernel: &Kernel,
    variant: Variant,
    stop: &AtomicBool,
) -> io::Result<Timing> {
    let program = options.builds.timed(&options.program, compiler, kernel, variant)?;
    let mut command = std::process::Command::new(program);
    command.arg(options.runs.to_string());
    let output = run(options, command, stop)?;
    kernel_runs(&output.printed).map_err(io::Error::other)
}

/// The system of a variant in results.
pub(super) fn system(compiler: &Compiler, variant: Variant) -> String {
    format!("{}/{variant}", compiler.name)
}

/// Adds one round of all kernels together, and what that is of naive placement's.
fn add_means(collect: &mut Collector, compiler: &Compiler, ratios: &[(Variant, Run)]) {
    let mean =
        |wanted| mean(ratios, wanted).unwrap_or_else(|| Run::invalid(f64::NAN, "was not measured"));
    for variant in Variant::PROBED {
        collect.add(&system(compiler, variant), MEAN, SLOWDOWN, "%", mean(variant));
    }
    let naive = mean(Variant::NaiveFlag);
    for variant in [Variant::BoundedClock, Variant::BoundedFlag] {
        let share = share(mean(variant), naive.clone());
        collect.add(&system(compiler, variant), MEAN, OF_NAIVE, "x", share);
    }
}

/// A share of nothing is none.
fn share(ours: Run, naive: Run) -> Run {
    match naive.value > 0.0 {
        true => compared(|ours, naive| ours / naive, ours, naive),
        false => Run::invalid(f64::NAN, "naive placement cost nothing in this round"),
    }
}

/// The targets, for each compiler's default variant.
pub(super) fn targets(compilers: &[Compiler], rows: &[Row]) -> Vec<Target> {
    compilers.iter().flat_map(|compiler| targets_of(compiler, rows)).collect()
}

fn targets_of(compiler: &Compiler, rows: &[Row]) -> Vec<Target> {
    let ours = system(compiler, Variant::BoundedClock);
    let slowdowns = rows.iter().filter(|row| row.system == ours && row.metric == SLOWDOWN);
    let at_most = |row: &Row| {
        Target::at_most(&format!("{}: {ours}'s slowdown", row.case), row, MOST_SLOWDOWN)
    };
    let share = rows.iter().find(|row| row.system == ours && row.metric == OF_NAIVE);
    let share = share.map(|row| {
        let naive = system(compiler, Variant::NaiveFlag);
        let what = format!("{MEAN}: {ours}'s slowdown over {naive}'s");
        Target::at_most(&what, row, MOST_OF_NAIVE)
    });
    slowdowns.map(at_most).chain(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn compiler() -> Compiler {
        Compiler { name: "clang-9".into(), path: PathBuf::from("/c"), version: "9.0.0".into() }
    }

    fn row<'a>(rows: &'a [Row], variant: Variant, case: &str, metric: &str) -> &'a Row {
        let system = system(&compiler(), variant);
        let same = |row: &&Row| row.system == system && row.case == case && row.metric == metric;
        rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"))
    }

    fn means(ratios: &[(Variant, Run)]) -> Vec<Row> {
        let mut collect = Collector::new();
        add_means(&mut collect, &compiler(), ratios);
        collect.into_rows()
    }

    #[test]
    fn all_kernels_together_are_a_geometric_mean_and_a_share_of_naive_placement() {
        let of = |variant, values: [f64; 2]| values.map(|value| (variant, Run::ok(value)));
        let bounded = of(Variant::BoundedClock, [1.0, 1.0404]);
        let rows = means(&[bounded, of(Variant::NaiveFlag, [1.21, 1.0])].concat());
        let of = |variant, metric| row(&rows, variant, MEAN, metric).value;
        assert!((of(Variant::BoundedClock, SLOWDOWN) - 2.0).abs() < 1e-9);
        assert!((of(Variant::NaiveFlag, SLOWDOWN) - 10.0).abs() < 1e-9);
        assert!((of(Variant::BoundedClock, OF_NAIVE) - 0.2).abs() < 1e-9);
        let verdicts: Vec<bool> =
            targets(&[compiler()], &rows).iter().map(|target| target.reached).collect();
        assert_eq!(verdicts, [true, true]);
    }

    #[test]
    fn a_mean_is_as_valid_as_its_kernels_and_a_share_needs_a_cost() {
        let ratios = [
            (Variant::BoundedClock, Run::ok(1.01)),
            (Variant::BoundedClock, Run::invalid(1.0, "other checksum")),
            (Variant::NaiveFlag, Run::ok(0.99)),
        ];
        let rows = means(&ratios);
        let mean = row(&rows, Variant::BoundedClock, MEAN, SLOWDOWN);
        assert!(!mean.valid && mean.note.contains("other checksum"));
        let share = row(&rows, Variant::BoundedClock, MEAN, OF_NAIVE);
        assert!(!share.valid && share.note.contains("cost nothing"), "{share:?}");
    }

    #[test]
    fn each_kernel_has_a_target() {
        let slowdown = |case: &str, value| {
            let system = system(&compiler(), Variant::BoundedClock);
            Row::from_runs(&system, case, SLOWDOWN, "%", &[Run::ok(value)])
        };
        let found = targets(&[compiler()], &[slowdown("fib", 3.4), slowdown("lu", 0.2)]);
        let lines: Vec<String> = found.iter().map(Target::line).collect();
        assert!(lines[0].contains("fib") && lines[0].ends_with("MISSED"), "{lines:?}");
        assert!(lines[1].contains("lu") && lines[1].ends_with("reached"), "{lines:?}");
    }
}
