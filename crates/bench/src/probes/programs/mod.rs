//! The slowdown of real programs that nothing preempts: each variant beside the one without probes, as `kernels` does
//! for kernels. `scripts/build-programs` has built them.

mod code;
mod set;

pub use set::Programs;

use std::io;
use std::sync::atomic::AtomicBool;

use super::options::ProbesOptions;
use super::output::{Timing, least};
use super::part::Part;
use super::run;
use super::slowdown::{MEAN, MOST_SLOWDOWN, SLOWDOWN, add, mean, turn};
use super::variant::Variant;
use crate::suite::{PartResult, Target};
use heddle_core::Ns;
use heddle_metrics::{Collector, Progress, Row, Run};
use set::Program;

/// Machine code of a program and its own libraries.
pub(super) const CODE: &str = "text_bytes";
/// By how much that is above the code without probes.
pub(super) const GROWTH: &str = "text_growth";

/// Most slowdown of all together, in per cent.
const MOST_MEAN: f64 = 2.0;

/// Why there is nothing to measure; `None` if there are programs.
pub(super) fn obstacle(options: &ProbesOptions) -> Option<String> {
    let how = "no folder of programs is given (scripts/build-programs FOLDER builds them, --programs FOLDER names it)";
    options.programs.is_none().then(|| how.to_owned())
}

/// The number of steps of a round.
pub(super) fn cases(options: &ProbesOptions) -> u64 {
    options.programs.as_ref().map_or(0, |programs| programs.all().len() as u64)
}

/// Measures in interleaved rounds; returns the rows so far if `stop` is set.
///
/// # Errors
/// None of its own: a variant that does not run is an invalid run.
pub(super) fn measure(
    options: &ProbesOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    let Some(programs) = &options.programs else { return Ok(PartResult::default()) };
    let mut collect = Collector::new();
    'all: for round in 0..options.rounds {
        let mut ratios = Vec::new();
        for program in programs.all() {
            progress.step(&format!("{}, round {}: {}", Part::Programs, round + 1, program.case));
            let once = |variant| once(options, programs, program, variant, stop);
            let Ok(turn) = turn(&program.variants, round, once) else { break 'all };
            ratios.extend(add(&mut collect, system, &program.case, &turn));
        }
        add_means(&mut collect, &ratios);
    }
    for program in programs.all() {
        add_code(&mut collect, &program.case, &sizes(programs, program));
    }
    let rows = collect.into_rows();
    Ok(PartResult { targets: targets(&rows), rows, ..PartResult::default() })
}

/// The system of a variant in results. The compiler is a matter of the program.
fn system(variant: Variant) -> String {
    variant.name().to_owned()
}

/// Whether a row is one of this part's.
pub(super) fn is_of(row: &Row) -> bool {
    Variant::ALL.iter().any(|variant| variant.name() == row.system)
}

fn once(
    options: &ProbesOptions,
    programs: &Programs,
    program: &Program,
    variant: Variant,
    stop: &AtomicBool,
) -> io::Result<Timing> {
    let mut runs = Vec::new();
    for _ in 0..options.program_runs {
        let scratch = set::scratch()?;
        let command = programs.command(program, variant, scratch.path());
        let output = run(options, command, stop)?;
        let checksum = program.checksum(&output.printed, &output.said, scratch.path())?;
        runs.push(Timing { least: Ns(output.cpu.as_nanos() as u64), checksum });
    }
    least(runs).map_err(io::Error::other)
}

/// Adds one round of all programs together: for each variant those that have it.
fn add_means(collect: &mut Collector, ratios: &[(Variant, Run)]) {
    for variant in Variant::PROBED {
        if let Some(mean) = mean(ratios, variant) {
            collect.add(&system(variant), MEAN, SLOWDOWN, "%", mean);
        }
    }
}

fn sizes(programs: &Programs, program: &Program) -> Vec<(Variant, Run)> {
    let of = |variant| {
        let sizes = programs.files(program, variant).into_iter().map(|file| code::bytes(&file));
        sizes.sum::<io::Result<u64>>()
    };
    let run = |variant| match of(variant) {
        Ok(bytes) => Run::ok(bytes as f64),
        Err(error) => Run::invalid(f64::NAN, error.to_string()),
    };
    program.variants.iter().map(|&variant| (variant, run(variant))).collect()
}

fn add_code(collect: &mut Collector, case: &str, sizes: &[(Variant, Run)]) {
    let plain = sizes.iter().find(|(variant, _)| *variant == Variant::None).map(|(_, run)| run);
    for (variant, run) in sizes {
        collect.add(&system(*variant), case, CODE, "B", run.clone());
        let Some(plain) = plain.filter(|_| *variant != Variant::None) else { continue };
        let value = (run.value / plain.value - 1.0) * 100.0;
        let invalid = run.invalid.clone().or(plain.invalid.clone());
        collect.add(&system(*variant), case, GROWTH, "%", Run { value, invalid });
    }
}

/// The most that a case may slow down, in per cent.
pub(super) fn most(case: &str) -> f64 {
    if case == MEAN { MOST_MEAN } else { MOST_SLOWDOWN }
}

/// The targets, for what `heddle cc` and `heddle cargo` do.
fn targets(rows: &[Row]) -> Vec<Target> {
    let ours = system(Variant::BoundedClock);
    let of = rows.iter().filter(|row| row.system == ours && row.metric == SLOWDOWN);
    let target = |row: &Row| {
        Target::at_most(&format!("{}: {ours}'s slowdown", row.case), row, most(&row.case))
    };
    of.map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(add: impl FnOnce(&mut Collector)) -> Vec<Row> {
        let mut collect = Collector::new();
        add(&mut collect);
        collect.into_rows()
    }

    #[test]
    fn a_mean_is_of_the_programs_that_have_the_variant() {
        let ratios = [
            (Variant::BoundedClock, Run::ok(1.0)),
            (Variant::NaiveFlag, Run::ok(1.5)),
            (Variant::BoundedClock, Run::ok(1.0404)),
        ];
        let rows = rows(|collect| add_means(collect, &ratios));
        let values: Vec<(&str, f64)> =
            rows.iter().map(|row| (&*row.system, row.value.round())).collect();
        assert_eq!(values, [("bounded+clock", 2.0), ("naive+flag", 50.0)]);
    }

    #[test]
    fn code_grows_by_a_share_of_what_it_is_without_probes() {
        let sizes = [(Variant::BoundedClock, Run::ok(110.0)), (Variant::None, Run::ok(100.0))];
        let rows = rows(|collect| add_code(collect, "zstd", &sizes));
        let found: Vec<(&str, &str, f64)> =
            rows.iter().map(|row| (&*row.system, &*row.metric, row.value.round())).collect();
        let expected = [
            ("bounded+clock", CODE, 110.0),
            ("bounded+clock", GROWTH, 10.0),
            ("none", CODE, 100.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn all_together_may_slow_down_less_than_one() {
        let slowdown = |case: &str, variant: Variant, value| {
            Row::from_runs(variant.name(), case, SLOWDOWN, "%", &[Run::ok(value)])
        };
        let found = targets(&[
            slowdown("zstd", Variant::BoundedClock, 2.5),
            slowdown("zstd", Variant::NaiveFlag, 9.0),
            slowdown(MEAN, Variant::BoundedClock, 2.5),
        ]);
        let lines: Vec<String> = found.iter().map(Target::line).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("zstd: bounded+clock") && lines[0].ends_with("reached"));
        assert!(lines[1].starts_with(MEAN) && lines[1].ends_with("MISSED"), "{lines:?}");
    }
}
