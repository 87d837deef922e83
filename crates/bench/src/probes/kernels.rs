//! The slowdown of kernels that nothing preempts: each variant beside the one without probes.

use std::io;
use std::sync::atomic::AtomicBool;

use super::compiler::Compiler;
use super::options::{ProbesOptions, each_first};
use super::output::{KernelRun, kernel_runs};
use super::part::Part;
use super::run;
use super::sources::{KERNELS, Kernel};
use super::variant::Variant;
use crate::posix::rounds::compared;
use crate::suite::{PartResult, Target};
use heddle_metrics::{Collector, Progress, Row, Run};

/// The least CPU time of a process's runs.
pub(super) const TIME: &str = "cpu_ns";
/// By how much that is above the time without probes, in the same round.
pub(super) const SLOWDOWN: &str = "slowdown";
/// The slowdown of all kernels together, divided by that of naive placement in the same round.
pub(super) const OF_NAIVE: &str = "of_naive";
/// The case of all kernels together.
pub(super) const ALL_KERNELS: &str = "geometric mean";

/// Most slowdown of a kernel, and of all together, in per cent.
pub(super) const MOST_SLOWDOWN: f64 = 3.0;
/// The largest share of naive placement's slowdown.
const MOST_OF_NAIVE: f64 = 0.25;

/// What was measured of a variant in one round, or why nothing was.
pub(super) type Timed = Result<KernelRun, String>;

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
                let mut turn = Vec::new();
                for &variant in each_first(&Variant::ALL, round) {
                    match once(options, compiler, kernel, variant, stop) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                        timed => turn.push((variant, timed.map_err(|error| error.to_string()))),
                    }
                }
                ratios.extend(add(&mut collect, compiler, kernel.name, &turn));
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
) -> io::Result<KernelRun> {
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

/// Adds one round of a kernel. Returns each variant's time over that without probes, in which a run is invalid if
/// either is, or if the checksums differ (invariant I3).
pub(super) fn add(
    collect: &mut Collector,
    compiler: &Compiler,
    case: &str,
    turn: &[(Variant, Timed)],
) -> Vec<(Variant, Run)> {
    let of = |wanted| turn.iter().find(|(variant, _)| *variant == wanted).map(|(_, timed)| timed);
    let plain = of(Variant::None).and_then(|timed| timed.as_ref().ok());
    let mut ratios = Vec::new();
    for variant in Variant::ALL {
        let Some(timed) = of(variant) else { continue };
        let time = time(timed, plain);
        let system = system(compiler, variant);
        collect.add(&system, case, TIME, "ns", time.clone());
        if variant != Variant::None {
            let ratio = ratio(time, plain);
            collect.add(&system, case, SLOWDOWN, "%", percent(&ratio));
            ratios.push((variant, ratio));
        }
    }
    ratios
}

fn time(timed: &Timed, plain: Option<&KernelRun>) -> Run {
    let run = match timed {
        Ok(run) => run,
        Err(why) => return Run::invalid(f64::NAN, why.clone()),
    };
    let value = run.least.0 as f64;
    match plain.filter(|plain| plain.checksum != run.checksum) {
        Some(plain) => {
            let (ours, expected) = (&run.checksum, &plain.checksum);
            Run::invalid(value, format!("checksum {ours}, without probes {expected}"))
        }
        None => Run::ok(value),
    }
}

fn ratio(time: Run, plain: Option<&KernelRun>) -> Run {
    match plain {
        Some(plain) => compared(|ours, plain| ours / plain, time, Run::ok(plain.least.0 as f64)),
        None => Run::invalid(f64::NAN, "no time without probes"),
    }
}

/// A ratio as per cent above one.
fn percent(ratio: &Run) -> Run {
    Run { value: (ratio.value - 1.0) * 100.0, invalid: ratio.invalid.clone() }
}

/// Adds one round of all kernels together, and what that is of naive placement's.
fn add_means(collect: &mut Collector, compiler: &Compiler, ratios: &[(Variant, Run)]) {
    let mean = |wanted| {
        let of = ratios.iter().filter(|(variant, _)| *variant == wanted);
        percent(&geometric_mean(&of.map(|(_, ratio)| ratio.clone()).collect::<Vec<_>>()))
    };
    for variant in Variant::PROBED {
        collect.add(&system(compiler, variant), ALL_KERNELS, SLOWDOWN, "%", mean(variant));
    }
    let naive = mean(Variant::NaiveFlag);
    for variant in [Variant::BoundedClock, Variant::BoundedFlag] {
        let share = share(mean(variant), naive.clone());
        collect.add(&system(compiler, variant), ALL_KERNELS, OF_NAIVE, "x", share);
    }
}

/// Valid only if all are.
fn geometric_mean(ratios: &[Run]) -> Run {
    let sum: f64 = ratios.iter().map(|ratio| ratio.value.ln()).sum();
    let value = (sum / ratios.len() as f64).exp();
    Run { value, invalid: ratios.iter().find_map(|ratio| ratio.invalid.clone()) }
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
        let what = format!("{ALL_KERNELS}: {ours}'s slowdown over {naive}'s");
        Target::at_most(&what, row, MOST_OF_NAIVE)
    });
    slowdowns.map(at_most).chain(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;
    use std::path::PathBuf;

    fn compiler() -> Compiler {
        Compiler { name: "clang-9".into(), path: PathBuf::from("/c"), version: "9.0.0".into() }
    }

    fn timed(ns: u64, checksum: &str) -> Timed {
        Ok(KernelRun { least: Ns(ns), checksum: checksum.into() })
    }

    fn row<'a>(rows: &'a [Row], variant: Variant, case: &str, metric: &str) -> &'a Row {
        let system = system(&compiler(), variant);
        let same = |row: &&Row| row.system == system && row.case == case && row.metric == metric;
        rows.iter().find(same).unwrap_or_else(|| panic!("no {system} {case} {metric}"))
    }

    /// The rows of one round of one kernel.
    fn round(turn: &[(Variant, Timed)]) -> Vec<Row> {
        let mut collect = Collector::new();
        add(&mut collect, &compiler(), "fib", turn);
        collect.into_rows()
    }

    #[test]
    fn a_slowdown_is_held_against_the_time_without_probes() {
        let turn = [(Variant::BoundedClock, timed(103, "a")), (Variant::None, timed(100, "a"))];
        let rows = round(&turn);
        let slowdown = row(&rows, Variant::BoundedClock, "fib", SLOWDOWN);
        assert!((slowdown.value - 3.0).abs() < 1e-9 && slowdown.valid, "{slowdown:?}");
        assert_eq!(row(&rows, Variant::None, "fib", TIME).value, 100.0);
        assert!(!rows.iter().any(|row| row.system.ends_with("none") && row.metric == SLOWDOWN));
    }

    /// Invariant I3.
    #[test]
    fn another_checksum_is_an_invalid_run() {
        let turn = [(Variant::None, timed(100, "a")), (Variant::NaiveFlag, timed(90, "b"))];
        let rows = round(&turn);
        for metric in [TIME, SLOWDOWN] {
            let row = row(&rows, Variant::NaiveFlag, "fib", metric);
            assert!(!row.valid && row.note.contains("checksum b, without probes a"), "{row:?}");
        }
        assert!(row(&rows, Variant::None, "fib", TIME).valid);
    }

    #[test]
    fn without_the_time_without_probes_there_is_no_slowdown() {
        let broken = Err("does not compile".to_owned());
        let rows = round(&[(Variant::None, broken), (Variant::BoundedFlag, timed(9, "a"))]);
        assert!(row(&rows, Variant::BoundedFlag, "fib", TIME).valid);
        let slowdown = row(&rows, Variant::BoundedFlag, "fib", SLOWDOWN);
        assert!(!slowdown.valid && slowdown.note.contains("no time without probes"));
        assert!(row(&rows, Variant::None, "fib", TIME).note.contains("does not compile"));
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
        let of = |variant, metric| row(&rows, variant, ALL_KERNELS, metric).value;
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
        let mean = row(&rows, Variant::BoundedClock, ALL_KERNELS, SLOWDOWN);
        assert!(!mean.valid && mean.note.contains("other checksum"));
        let share = row(&rows, Variant::BoundedClock, ALL_KERNELS, OF_NAIVE);
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
