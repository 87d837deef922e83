//! A row of a result: a system, a case, a metric and its value over several runs.

use serde::{Deserialize, Serialize};

/// One run's value of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The value, in the row's unit.
    pub value: f64,
    /// Why the run must not be quoted; `None` if it is valid.
    pub invalid: Option<String>,
}

impl Run {
    /// Returns a valid run.
    pub fn ok(value: f64) -> Run {
        Run { value, invalid: None }
    }

    /// Returns a run that is kept but not quoted, with the reason: `2.1 % of sends late`.
    pub fn invalid(value: f64, reason: impl Into<String>) -> Run {
        Run { value, invalid: Some(reason.into()) }
    }

    fn is_valid(&self) -> bool {
        self.invalid.is_none() && self.value.is_finite()
    }

    fn reason(&self) -> &str {
        self.invalid.as_deref().unwrap_or("no finite value")
    }
}

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Times, shares of failures.
    Lower,
    /// Rates, throughput.
    Higher,
}

/// A row of the result format.
///
/// `load`, `samples`, `better` and `invalid_runs` are optional in JSON and absent if unused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The system: `heddle`, `tokio`, `two-queue+signal`.
    pub system: String,
    /// The operation or workload: `yield`, `get`.
    pub case: String,
    /// The metric: `cpu_ns_per_op`, `p99`.
    pub metric: String,
    /// The median of the valid runs, or of all runs if none is valid.
    pub value: f64,
    /// The unit of `value`, `min` and `max`: `ns`, `1/s`, `%`, `x`.
    pub unit: String,
    /// The number of runs behind `value`.
    pub runs: u32,
    /// The lowest of these runs.
    pub min: f64,
    /// The highest of these runs.
    pub max: f64,
    /// Whether the row may be quoted.
    pub valid: bool,
    /// What a reader must know, including why runs are invalid.
    #[serde(default)]
    pub note: String,
    /// The offered load in 1/s, if the row is a point of a curve over load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The number of samples in all runs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The better direction, if the unit does not imply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// Values of invalid runs that `value` excludes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_runs: Vec<f64>,
}

impl Row {
    /// Returns the median, minimum and maximum of `runs`.
    ///
    /// While there is any valid run, invalid runs and values that are not finite are excluded, and recorded in
    /// `invalid_runs` and `note`. Without a valid run the row is invalid, and its value is the median of the
    /// invalid ones (0 if there are none).
    ///
    /// ```
    /// use heddle_metrics::{Row, Run};
    ///
    /// let runs = [Run::ok(24.0), Run::ok(26.0), Run::invalid(90.0, "2.1 % of sends late"), Run::ok(25.0)];
    /// let row = Row::from_runs("heddle", "yield", "cpu_ns_per_op", "ns", &runs);
    /// assert_eq!((row.value, row.min, row.max, row.runs), (25.0, 24.0, 26.0, 3));
    /// assert!(row.valid);
    /// assert_eq!(row.note, "1 of 4 runs invalid (2.1 % of sends late)");
    /// ```
    pub fn from_runs(system: &str, case: &str, metric: &str, unit: &str, runs: &[Run]) -> Row {
        let valid: Vec<f64> = runs.iter().filter(|r| r.is_valid()).map(|r| r.value).collect();
        let invalid: Vec<f64> =
            runs.iter().filter(|r| !r.is_valid() && r.value.is_finite()).map(|r| r.value).collect();
        let is_valid = !valid.is_empty();
        let (mut used, left_out) = if is_valid { (valid, invalid) } else { (invalid, Vec::new()) };
        used.sort_by(f64::total_cmp);
        Row {
            system: system.into(),
            case: case.into(),
            metric: metric.into(),
            value: median(&used),
            unit: unit.into(),
            runs: u32::try_from(used.len()).unwrap_or(u32::MAX),
            min: used.first().copied().unwrap_or(0.0),
            max: used.last().copied().unwrap_or(0.0),
            valid: is_valid,
            note: invalid_note(runs),
            load: None,
            samples: None,
            better: None,
            invalid_runs: left_out,
        }
    }

    /// Returns the same row as a point of a curve, at an offered load of `per_s` (1/s).
    #[must_use]
    pub fn with_load(self, per_s: f64) -> Row {
        Row { load: Some(per_s).filter(|l| l.is_finite()), ..self }
    }

    /// Returns the same row with its number of samples.
    #[must_use]
    pub fn with_samples(self, samples: u64) -> Row {
        Row { samples: Some(samples), ..self }
    }

    /// Returns the same row with `note` appended to its note.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Row {
        if !self.note.is_empty() && !note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
        self
    }

    /// Returns the same row with the better direction set.
    #[must_use]
    pub fn with_better(self, better: Better) -> Row {
        Row { better: Some(better), ..self }
    }

    /// Returns the better direction: as set, else higher for rates (`1/s`, `op/s`, `MB/s`), else lower.
    pub fn better(&self) -> Better {
        self.better.unwrap_or(if self.unit.ends_with("/s") {
            Better::Higher
        } else {
            Better::Lower
        })
    }

    /// Whether the runs show that the true value is not `value`: there are at least two, all on one side of it.
    /// A ratio that is not distinct from 1, or a cost that is not distinct from 0, is not measurable.
    ///
    /// ```
    /// use heddle_metrics::{Row, Run};
    ///
    /// let cost = |runs: &[f64]| {
    ///     let runs: Vec<Run> = runs.iter().copied().map(Run::ok).collect();
    ///     Row::from_runs("heddle", "scan", "cost", "%", &runs)
    /// };
    /// assert!(cost(&[2.1, 2.4, 3.0]).is_distinct_from(0.0));
    /// assert!(!cost(&[-15.0, 2.4, 35.0]).is_distinct_from(0.0));
    /// assert!(!cost(&[2.4]).is_distinct_from(0.0));
    /// ```
    pub fn is_distinct_from(&self, value: f64) -> bool {
        self.runs >= 2 && (self.min > value || self.max < value)
    }

    /// The contradiction in the row's numbers, if any.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        if self.min > self.max {
            Some("min is greater than max")
        } else if self.runs > 0 && !(self.min..=self.max).contains(&self.value) {
            Some("value is not between min and max")
        } else if self.valid && self.runs == 0 {
            Some("valid without a run")
        } else {
            None
        }
    }
}

/// The median of sorted values; for an even number, the mean of the middle two.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => sorted[n / 2 - 1] / 2.0 + sorted[n / 2] / 2.0,
    }
}

fn invalid_note(runs: &[Run]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    let invalid: Vec<&Run> = runs.iter().filter(|r| !r.is_valid()).collect();
    for run in &invalid {
        if !reasons.contains(&run.reason()) {
            reasons.push(run.reason());
        }
    }
    match (runs.len(), invalid.len()) {
        (0, _) => "no run".into(),
        (_, 0) => String::new(),
        (all, bad) => format!("{bad} of {all} runs invalid ({})", reasons.join("; ")),
    }
}
