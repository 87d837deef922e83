//! Times of variants, and their slowdowns: each variant beside the one without probes.

use std::io;

use super::options::each_first;
use super::output::Timing;
use super::variant::Variant;
use crate::posix::rounds::compared;
use heddle_metrics::{Collector, Run};

/// The least CPU time of a process's runs, or of several processes.
pub(super) const TIME: &str = "cpu_ns";
/// By how much that is above the time without probes, in the same round.
pub(super) const SLOWDOWN: &str = "slowdown";
/// The case of all others together.
pub(super) const MEAN: &str = "geometric mean";

/// Most slowdown of a case, in per cent.
pub(super) const MOST_SLOWDOWN: f64 = 3.0;

/// What was measured of a variant in one round, or why nothing was.
pub(super) type Timed = Result<Timing, String>;

/// Runs each of the variants `once`, in the order of this round.
///
/// # Errors
/// Only that it was interrupted: else a failure is what was measured of that variant.
pub(super) fn turn(
    variants: &[Variant],
    round: u32,
    mut once: impl FnMut(Variant) -> io::Result<Timing>,
) -> io::Result<Vec<(Variant, Timed)>> {
    let timed = |&variant: &Variant| match once(variant) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
        timed => Ok((variant, timed.map_err(|error| error.to_string()))),
    };
    each_first(variants, round).map(timed).collect()
}

/// Adds one round of a case. Returns each variant's time over that without probes, in which a run is invalid if
/// either is, or if the checksums differ (invariant I3). `system` names a variant in results.
pub(super) fn add(
    collect: &mut Collector,
    system: impl Fn(Variant) -> String,
    case: &str,
    turn: &[(Variant, Timed)],
) -> Vec<(Variant, Run)> {
    let of = |wanted| turn.iter().find(|(variant, _)| *variant == wanted).map(|(_, timed)| timed);
    let plain = of(Variant::None).and_then(|timed| timed.as_ref().ok());
    let mut ratios = Vec::new();
    for variant in Variant::ALL {
        let Some(timed) = of(variant) else { continue };
        let time = time(timed, plain);
        let system = system(variant);
        collect.add(&system, case, TIME, "ns", time.clone());
        if variant != Variant::None {
            let ratio = ratio(time, plain);
            collect.add(&system, case, SLOWDOWN, "%", percent(&ratio));
            ratios.push((variant, ratio));
        }
    }
    ratios
}

fn time(timed: &Timed, plain: Option<&Timing>) -> Run {
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

fn ratio(time: Run, plain: Option<&Timing>) -> Run {
    match plain {
        Some(plain) => compared(|ours, plain| ours / plain, time, Run::ok(plain.least.0 as f64)),
        None => Run::invalid(f64::NAN, "no time without probes"),
    }
}

/// A ratio as per cent above one.
fn percent(ratio: &Run) -> Run {
    Run { value: (ratio.value - 1.0) * 100.0, invalid: ratio.invalid.clone() }
}

/// The geometric mean of a variant's ratios, as per cent above one; `None` if it has none. Valid only if all are.
pub(super) fn mean(ratios: &[(Variant, Run)], wanted: Variant) -> Option<Run> {
    let of: Vec<&Run> =
        ratios.iter().filter(|(variant, _)| *variant == wanted).map(|(_, ratio)| ratio).collect();
    let sum: f64 = of.iter().map(|ratio| ratio.value.ln()).sum();
    let value = (sum / of.len() as f64).exp();
    let invalid = of.iter().find_map(|ratio| ratio.invalid.clone());
    (!of.is_empty()).then(|| percent(&Run { value, invalid }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;
    use heddle_metrics::Row;

    fn timed(ns: u64, checksum: &str) -> Timed {
        Ok(Timing { least: Ns(ns), checksum: checksum.into() })
    }

    fn row<'a>(rows: &'a [Row], variant: Variant, metric: &str) -> &'a Row {
        let same = |row: &&Row| row.system == variant.name() && row.metric == metric;
        rows.iter().find(same).unwrap_or_else(|| panic!("no {variant} {metric}"))
    }

    /// The rows of one round of one case.
    fn round(turn: &[(Variant, Timed)]) -> Vec<Row> {
        let mut collect = Collector::new();
        add(&mut collect, |variant| variant.to_string(), "fib", turn);
        collect.into_rows()
    }

    #[test]
    fn a_slowdown_is_held_against_the_time_without_probes() {
        let turn = [(Variant::BoundedClock, timed(103, "a")), (Variant::None, timed(100, "a"))];
        let rows = round(&turn);
        let slowdown = row(&rows, Variant::BoundedClock, SLOWDOWN);
        assert!((slowdown.value - 3.0).abs() < 1e-9 && slowdown.valid, "{slowdown:?}");
        assert_eq!(row(&rows, Variant::None, TIME).value, 100.0);
        assert!(!rows.iter().any(|row| row.system == "none" && row.metric == SLOWDOWN));
    }

    /// Invariant I3.
    #[test]
    fn another_checksum_is_an_invalid_run() {
        let turn = [(Variant::None, timed(100, "a")), (Variant::NaiveFlag, timed(90, "b"))];
        let rows = round(&turn);
        for metric in [TIME, SLOWDOWN] {
            let row = row(&rows, Variant::NaiveFlag, metric);
            assert!(!row.valid && row.note.contains("checksum b, without probes a"), "{row:?}");
        }
        assert!(row(&rows, Variant::None, TIME).valid);
    }

    #[test]
    fn without_the_time_without_probes_there_is_no_slowdown() {
        let broken = Err("does not compile".to_owned());
        let rows = round(&[(Variant::None, broken), (Variant::BoundedFlag, timed(9, "a"))]);
        assert!(row(&rows, Variant::BoundedFlag, TIME).valid);
        let slowdown = row(&rows, Variant::BoundedFlag, SLOWDOWN);
        assert!(!slowdown.valid && slowdown.note.contains("no time without probes"));
        assert!(row(&rows, Variant::None, TIME).note.contains("does not compile"));
    }

    #[test]
    fn a_mean_is_geometric_and_as_valid_as_its_cases() {
        let mut ratios = vec![
            (Variant::BoundedClock, Run::ok(1.0)),
            (Variant::NaiveFlag, Run::ok(7.0)),
            (Variant::BoundedClock, Run::ok(1.0404)),
        ];
        let two = mean(&ratios, Variant::BoundedClock).unwrap();
        assert!((two.value - 2.0).abs() < 1e-9 && two.invalid.is_none(), "{two:?}");
        ratios.push((Variant::BoundedClock, Run::invalid(1.0, "other checksum")));
        let three = mean(&ratios, Variant::BoundedClock).unwrap();
        assert!(three.invalid.unwrap().contains("other checksum"));
        assert!(mean(&ratios, Variant::NaiveClock).is_none());
    }
}
