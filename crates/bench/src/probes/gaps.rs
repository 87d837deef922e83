//! The time between two looks at the clock in kernels with probes, as the default variant of `heddle cc` places them.

use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::compiler::Compiler;
use super::options::ProbesOptions;
use super::output::{self, Recorded};
use super::part::Part;
use super::run;
use super::sources::{CLOCK, KERNELS, Kernel};
use crate::posix::rounds::attempts;
use crate::suite::{PartResult, Target};
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run};

/// The percentiles, with the names of their rows.
pub(super) const PERCENTILES: [(&str, f64); 4] =
    [("gap_p50", 50.0), ("gap_p99", 99.0), (OF_TARGET, 99.9), ("gap_p99.99", 99.99)];
/// The percentile that the target is about.
pub(super) const OF_TARGET: &str = "gap_p99.9";
/// The longest.
pub(super) const MAX: &str = "gap_max";
/// Gaps that are left out, because the machine had the CPU: a share of all, in per cent.
pub(super) const LOST: &str = "left_out";

/// The longest p99.9.
pub(super) const MOST: Ns = Ns::from_us(5);
/// The largest share of gaps that may be left out: all of them could be above the p99.9.
const MOST_LOST: f64 = 0.001;

/// Kernels in a round of one compiler; the first is the clock.
pub(super) const CASES: u64 = 1 + KERNELS.len() as u64;

/// What was recorded of a kernel in one round, or why nothing was.
type Measured = Result<Recorded, String>;

/// Measures in interleaved rounds; returns the rows so far if `stop` is set.
///
/// # Errors
/// None of its own: a kernel that does not compile or run is an invalid run.
pub(super) fn measure(
    options: &ProbesOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        for compiler in &options.compilers {
            let mut machine = None;
            for kernel in std::iter::once(&CLOCK).chain(&KERNELS) {
                let case = format!("{}, {}", compiler.name, kernel.name);
                progress.step(&format!("{}, round {}: {case}", Part::Gaps, round + 1));
                let measured = match record(options, compiler, kernel, stop) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => break 'all,
                    measured => measured.map_err(|error| error.to_string()),
                };
                add(&mut collect, compiler, kernel.name, &measured, machine.as_deref());
                if *kernel == CLOCK {
                    machine = unfit(&measured);
                }
            }
        }
    }
    let rows = collect.into_rows();
    Ok(PartResult { targets: targets(&rows), rows, ..PartResult::default() })
}

fn record(
    options: &ProbesOptions,
    compiler: &Compiler,
    kernel: &Kernel,
    stop: &AtomicBool,
) -> io::Result<Recorded> {
    let program = options.builds.recorded(&options.program, compiler, kernel)?;
    let once = || {
        let mut command = Command::new(&program);
        command.arg(options.recorded_runs.to_string());
        output::recorded(&run(options, command, stop)?.printed).map_err(io::Error::other)
    };
    attempts(options.tries, once, lost)
}

/// Why a recording says nothing (invariant I4).
fn lost(recorded: &Recorded) -> Option<String> {
    let too_many = recorded.lost > MOST_LOST;
    too_many.then(|| format!("{:.2} % of the gaps left out", recorded.lost * 100.0))
}

/// Why a machine cannot show that the target is reached: a loop that only looks at the clock would miss it.
fn unfit(clock: &Measured) -> Option<String> {
    let p999 = clock.as_ref().ok()?.times.p999();
    (p999 > MOST).then(|| format!("on this machine a loop that only looks at the clock has {p999}"))
}

fn add(
    collect: &mut Collector,
    compiler: &Compiler,
    case: &str,
    measured: &Measured,
    machine: Option<&str>,
) {
    let recorded = match measured {
        Ok(recorded) => recorded,
        Err(why) => {
            let run = Run::invalid(f64::NAN, why.clone());
            return collect.add(&compiler.name, case, OF_TARGET, "ns", run);
        }
    };
    let invalid = lost(recorded).or(machine.map(str::to_owned));
    let run = |value: f64| Run { value, invalid: invalid.clone() };
    let times = &recorded.times;
    for (metric, percent) in PERCENTILES {
        let value = times.percentile(percent).0 as f64;
        collect.add(&compiler.name, case, metric, "ns", run(value));
    }
    collect.add(&compiler.name, case, MAX, "ns", run(times.max().0 as f64));
    collect.add(&compiler.name, case, LOST, "%", run(recorded.lost * 100.0));
}

/// A target for each kernel and compiler.
pub(super) fn targets(rows: &[Row]) -> Vec<Target> {
    let ours = rows.iter().filter(|row| row.metric == OF_TARGET && row.case != CLOCK.name);
    let target = |row: &Row| {
        let what = format!("{}: {}'s p99.9 between looks at the clock", row.case, row.system);
        Target::at_most(&what, row, MOST.0 as f64)
    };
    ours.map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Histogram;
    use std::path::PathBuf;

    fn compiler() -> Compiler {
        Compiler { name: "clang-9".into(), path: PathBuf::from("/c"), version: "9.0.0".into() }
    }

    fn recording(times: &[(u64, u64)], lost: f64) -> Recorded {
        let mut all = Histogram::new();
        times.iter().for_each(|&(us, count)| all.record_n(Ns::from_us(us), count));
        Recorded { times: all, whole: Histogram::new(), lost, stolen: 0.0 }
    }

    fn rows(case: &str, measured: &Measured, machine: Option<&str>) -> Vec<Row> {
        let mut collect = Collector::new();
        add(&mut collect, &compiler(), case, measured, machine);
        collect.into_rows()
    }

    #[test]
    fn percentiles_are_of_all_gaps_and_the_target_is_about_one() {
        let rows = rows("fib", &Ok(recording(&[(1, 9_995), (9, 5)], 0.0)), None);
        let value = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().value;
        assert_eq!((value("gap_p50"), value(OF_TARGET)), (1000.0, 1000.0));
        assert!(value("gap_p99.99") > 8999.0 && value(MAX) == 9000.0);
        assert!(targets(&rows).iter().all(|target| target.reached));
        let late = self::rows("fib", &Ok(recording(&[(1, 99), (9, 1)], 0.0)), None);
        assert!(targets(&late)[0].line().ends_with("MISSED"));
    }

    /// Invariant I4.
    #[test]
    fn what_was_left_out_could_hide_the_percentile() {
        let invalid = |lost| {
            let rows = rows("fib", &Ok(recording(&[(1, 1000)], lost)), None);
            assert!(rows.iter().all(|row| row.valid == rows[0].valid));
            !rows[0].valid
        };
        assert!(!invalid(0.001) && invalid(0.0011));
    }

    #[test]
    fn a_machine_that_interrupts_too_often_shows_nothing() {
        let clock = Ok(recording(&[(2, 500), (20, 1)], 0.0));
        let why = unfit(&clock).unwrap();
        assert!(why.contains("20"), "{why}");
        let rows = rows("fib", &Ok(recording(&[(2, 500)], 0.0)), Some(&why));
        assert!(targets(&rows)[0].line().ends_with("do not quote"));
        assert_eq!(unfit(&Ok(recording(&[(2, 5000), (20, 1)], 0.0))), None);
        assert_eq!(unfit(&Err("no compiler".into())), None);
    }

    #[test]
    fn the_clock_has_no_target_and_what_fails_says_why() {
        assert!(targets(&rows(CLOCK.name, &Ok(recording(&[(9, 1)], 0.0)), None)).is_empty());
        let rows = rows("fib", &Err("does not compile".into()), None);
        assert!(!rows[0].valid && rows[0].note.contains("does not compile"));
    }
}
