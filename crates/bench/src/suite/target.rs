//! Targets, and whether they were reached.

use heddle_metrics::Row;

/// A bound that a result is compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Description of the quantity.
    pub what: String,
    /// The bound, in words.
    pub bound: String,
    /// What was measured, in words.
    pub measured: String,
    /// Whether it holds, by the median.
    pub reached: bool,
    /// Whether the runs decide it. They do not if they lie on both sides of the bound and of "no difference":
    /// a cost of at most 3 %, measured as 2 % in the median and as -15 to 35 % over the runs.
    pub measurable: bool,
    /// Whether the run may be quoted.
    pub valid: bool,
}

impl Target {
    /// A row that may be at most `most`.
    #[must_use]
    pub fn at_most(what: &str, row: &Row, most: f64) -> Target {
        let bound = format!("at most {}", show(most, &row.unit));
        Target { measurable: decides(row, most), ..Target::of(what, row, bound, row.value <= most) }
    }

    /// A row of which no run may be above `most`: what must never happen is not a matter of medians.
    #[must_use]
    pub fn never_above(what: &str, row: &Row, most: f64) -> Target {
        let bound = format!("never above {}", show(most, &row.unit));
        let worst = row.invalid_runs.iter().copied().fold(row.max, f64::max);
        Target::of(what, row, bound, worst <= most)
    }

    /// A row that must be at least `least`.
    #[must_use]
    pub fn at_least(what: &str, row: &Row, least: f64) -> Target {
        let bound = format!("at least {}", show(least, &row.unit));
        Target {
            measurable: decides(row, least),
            ..Target::of(what, row, bound, row.value >= least)
        }
    }

    fn of(what: &str, row: &Row, bound: String, reached: bool) -> Target {
        let measured = if row.runs > 1 {
            let unit = &row.unit;
            format!(
                "{} ({} to {})",
                show(row.value, unit),
                show(row.min, unit),
                show(row.max, unit)
            )
        } else {
            show(row.value, &row.unit)
        };
        let measurable = true;
        Target { what: what.into(), bound, measured, reached, measurable, valid: row.valid }
    }

    /// The line that is printed.
    #[must_use]
    pub fn line(&self) -> String {
        let verdict = match (self.valid, self.reached) {
            (false, _) => "invalid, do not quote",
            (true, _) if !self.measurable => "not measurable",
            (true, true) => "reached",
            (true, false) => "MISSED",
        };
        format!("{}: target {}, measured {}: {verdict}", self.what, self.bound, self.measured)
    }
}

/// Whether the runs of `row` decide a bound; see [`Target::measurable`].
fn decides(row: &Row, bound: f64) -> bool {
    let no_difference = match row.unit.as_str() {
        "%" => 0.0,
        "x" => 1.0,
        _ => return true,
    };
    let within = |value: f64| row.min < value && value < row.max;
    !(within(no_difference) && within(bound))
}

fn show(value: f64, unit: &str) -> String {
    match unit {
        "x" => format!("{value:.2} times"),
        "ns" => heddle_metrics::human(value, "ns"),
        "%" => format!("{value:.1} %"),
        _ => format!("{value:.0} {unit}").trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_metrics::Run;

    #[test]
    fn a_target_says_what_was_measured() {
        let row = Row::from_runs("agent-rt", "wakeup", "p99_gain", "x", &[Run::ok(12.0)]);
        let line = Target::at_least("p99", &row, 10.0).line();
        assert_eq!(line, "p99: target at least 10.00 times, measured 12.00 times: reached");
        assert!(Target::at_most("p99", &row, 10.0).line().ends_with("MISSED"));
        let row = Row::from_runs("a", "b", "c", "", &[Run::ok(0.0), Run::ok(2.0)]);
        assert_eq!(
            Target::at_most("lost", &row, 0.0).line(),
            "lost: target at most 0, measured 1 (0 to 2): MISSED"
        );
        assert!(Target::never_above("lost", &row, 1.0).line().ends_with("MISSED"));
        assert!(Target::never_above("lost", &row, 2.0).line().ends_with("reached"));
        let row = Row::from_runs("a", "b", "c", "ns", &[Run::invalid(1.0, "late")]);
        assert!(Target::at_most("lost", &row, 2.0).line().contains("do not quote"));
    }

    #[test]
    fn a_cost_between_a_gain_and_more_than_its_bound_is_not_measurable() {
        let row =
            |unit: &str, runs: [f64; 3]| Row::from_runs("a", "b", "c", unit, &runs.map(Run::ok));
        let verdict = |target: Target| target.line().rsplit(": ").next().unwrap().to_owned();
        let wide = row("%", [-15.0, 2.0, 35.0]);
        assert_eq!(verdict(Target::at_most("cost", &wide, 3.0)), "not measurable");
        assert_eq!(verdict(Target::at_most("cost", &wide, 1.0)), "not measurable");
        let narrow = row("%", [-1.0, 1.0, 2.0]);
        assert_eq!(verdict(Target::at_most("cost", &narrow, 3.0)), "reached");
        let ratio = row("x", [0.85, 1.02, 1.35]);
        assert_eq!(verdict(Target::at_most("cost", &ratio, 1.03)), "not measurable");
        let gain = row("x", [0.9, 12.0, 40.0]);
        assert_eq!(verdict(Target::at_least("gain", &gain, 10.0)), "not measurable");
        assert_eq!(
            verdict(Target::at_least("gain", &row("x", [2.0, 12.0, 40.0]), 10.0)),
            "reached"
        );
        assert_eq!(verdict(Target::never_above("cost", &wide, 3.0)), "MISSED");
    }
}
