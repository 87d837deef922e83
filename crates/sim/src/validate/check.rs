//! Compares measured with expected values.

use super::{Case, Effort, Measure};
use crate::theory::student;
use crate::{Estimate, Unstable};
use heddle_metrics::{Better, Row, Run};
use std::fmt;

/// The relative error up to which a measured and an expected value agree.
pub const TOLERANCE: f64 = 0.02;

/// The widest interval, relative to the expected value, that counts as agreement: a wider one would
/// agree with anything.
pub const WIDEST: f64 = 0.15;

/// Whether a measured and an expected value agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To [`TOLERANCE`].
    Close,
    /// Not within the tolerance, but the confidence interval, no wider than [`WIDEST`], holds the
    /// expected value. Counts as agreement for short runs.
    Inside,
    /// They do not.
    Off,
}

/// One quantity of a case, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The case's name.
    pub case: String,
    /// The formula and its source.
    pub theory: &'static str,
    /// The policy that ran.
    pub policy: String,
    /// What was measured.
    pub measure: Measure,
    /// The value by theory, in [`Measure::unit`].
    pub expected: f64,
    /// The mean of the runs and the half-width of its 95 % confidence interval (Student's t).
    pub measured: Estimate,
    /// How many runs.
    pub runs: u64,
    /// Requests measured in each.
    pub requests: u64,
    /// The first reason why a run has no steady state, although one was expected.
    pub unstable: Option<Unstable>,
    /// How much was run.
    pub effort: Effort,
}

impl Check {
    pub(super) fn new(
        case: &Case,
        effort: Effort,
        (measure, expected): (Measure, f64),
        values: &[f64],
        unstable: Option<Unstable>,
    ) -> Check {
        Check {
            case: case.name.clone(),
            theory: case.theory,
            policy: case.scenario.policy.clone(),
            measure,
            expected,
            measured: estimate(values),
            runs: values.len() as u64,
            requests: case.scenario_of(effort, 0).requests,
            unstable,
            effort,
        }
    }

    /// Returns measured over expected, minus one; if zero is expected, the measured value.
    pub fn relative_error(&self) -> f64 {
        let off = self.measured.value - self.expected;
        if self.expected == 0.0 { off } else { off / self.expected }
    }

    /// Returns how well they agree.
    pub fn verdict(&self) -> Verdict {
        let (error, width) = (self.relative_error().abs(), self.measured.half_width);
        let off = (self.measured.value - self.expected).abs();
        match () {
            // A value that is not a number is never close.
            () if self.unstable.is_some() || error.is_nan() => Verdict::Off,
            () if error <= TOLERANCE => Verdict::Close,
            () if off <= width && width <= WIDEST * self.expected.abs() => Verdict::Inside,
            () => Verdict::Off,
        }
    }

    /// Returns whether they agree as well as runs of this length must.
    pub fn agrees(&self) -> bool {
        match self.verdict() {
            Verdict::Close => true,
            Verdict::Inside => self.effort == Effort::Quick,
            Verdict::Off => false,
        }
    }

    /// Returns the relative error as a row of the result format, the rest in its note.
    pub fn row(&self) -> Row {
        let percent = 100.0 * self.relative_error().abs();
        let run = match self.agrees() {
            true => Run::ok(percent),
            false => Run::invalid(percent, "does not agree with theory"),
        };
        let case = format!("{}: {}", self.case, self.measure);
        Row::from_runs("heddle-sim", &case, "relative_error", "%", &[run])
            .with_better(Better::Lower)
            .with_samples(self.runs * self.requests)
            .with_note(&self.to_string())
    }
}

impl fmt::Display for Check {
    /// The line below the error: what was expected and measured, and how.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { expected, measured, policy, theory, runs, .. } = self;
        let unit = match self.measure.unit() {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        write!(f, "expected {}{unit}, measured {}", Digits(*expected), Digits(measured.value))?;
        write!(
            f,
            " +- {}{unit} (95 %, {runs} runs); {policy}; {theory}",
            Digits(measured.half_width)
        )?;
        self.unstable.map_or(Ok(()), |why| write!(f, "; {why}"))
    }
}

/// A number with five significant digits, more than the precision of any of them.
pub(super) struct Digits(pub f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 {
            return f.write_str("0");
        }
        let magnitude = self.0.abs().max(1e-6).log10().floor() as i32;
        write!(f, "{:.*}", usize::try_from(4 - magnitude).unwrap_or(0), self.0)
    }
}

/// Returns the mean of independent runs and its interval; infinitely wide for one run.
fn estimate(values: &[f64]) -> Estimate {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = student::two_sided(values.len() as u32 - 1, 0.95);
    let half_width = t.map_or(f64::INFINITY, |t| t * (variance / n).sqrt());
    Estimate { value: mean, half_width }
}

/// Returns all checks in the result format.
pub fn rows(checks: &[Check]) -> Vec<Row> {
    checks.iter().map(Check::row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    fn check(effort: Effort, values: &[f64]) -> Check {
        let scenario = Scenario::ideal("fifo", 1, "exp(1ms)".parse().unwrap(), 0.5);
        let case = Case::new("M/M/1", "by hand", scenario);
        Check::new(&case, effort, (Measure::Mean, 2.0), values, None)
    }

    #[test]
    fn two_percent_are_close_and_an_interval_counts_only_for_short_runs() {
        let close = check(Effort::Full, &[2.02, 2.04]);
        assert_eq!((close.verdict(), close.agrees()), (Verdict::Close, true));
        let inside = |effort| check(effort, &[2.15, 2.05, 1.95, 2.1, 2.05]);
        assert_eq!(inside(Effort::Full).verdict(), Verdict::Inside);
        assert_eq!((inside(Effort::Full).agrees(), inside(Effort::Quick).agrees()), (false, true));
    }

    #[test]
    fn an_interval_that_holds_everything_proves_nothing() {
        assert_eq!(check(Effort::Quick, &[1.0, 4.0]).verdict(), Verdict::Off);
        assert_eq!(check(Effort::Quick, &[2.5, 2.51, 2.49]).verdict(), Verdict::Off);
        assert_eq!(check(Effort::Quick, &[f64::NAN, 2.0]).verdict(), Verdict::Off);
    }

    #[test]
    fn a_run_without_a_steady_state_agrees_with_nothing() {
        let unstable = Some(Unstable::Stuck);
        assert!(!Check { unstable, ..check(Effort::Quick, &[2.0, 2.0]) }.agrees());
    }

    #[test]
    fn a_row_has_the_error_and_says_from_what() {
        let row = check(Effort::Full, &[2.02, 2.02]).row();
        assert_eq!(
            (row.metric.as_str(), row.unit.as_str(), row.valid),
            ("relative_error", "%", true)
        );
        assert!((row.value - 1.0).abs() < 1e-9);
        assert!(row.note.starts_with("expected 2.0000 ms, measured 2.0200 +- 0 ms (95 %, 2 runs)"));
        let off = check(Effort::Full, &[3.0, 3.0]).row();
        assert!(!off.valid && off.note.contains("does not agree"), "{}", off.note);
    }
}
