//! One line of a result: a system, a case, a metric and its value over several runs.

use serde::{Deserialize, Serialize};

/// One run's value of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The value, in the row's unit.
    pub value: f64,
    /// Why the run must not be quoted; `None` where it may.
    pub invalid: Option<String>,
}

impl Run {
    /// A run that counts.
    pub fn ok(value: f64) -> Run {
        Run { value, invalid: None }
    }

    /// A run that is kept but not quoted, and why: `2.1 % of sends late`.
    pub fn invalid(value: f64, why: impl Into<String>) -> Run {
        Run { value, invalid: Some(why.into()) }
    }

    fn is_valid(&self) -> bool {
        self.invalid.is_none() && self.value.is_finite()
    }

    fn why(&self) -> &str {
        self.invalid.as_deref().unwrap_or("no finite value")
    }
}

/// Which way a metric improves.
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
/// `load`, `samples`, `better` and `invalid_runs` are optional in JSON and absent when not used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured: `heddle`, `tokio`, `two-queue+signal`.
    pub system: String,
    /// The operation or workload: `yield`, `get`.
    pub case: String,
    /// What about it: `cpu_ns_per_op`, `p99`.
    pub metric: String,
    /// The median of the valid runs (of all runs where none is valid).
    pub value: f64,
    /// The unit of `value`, `min`, `max`: `ns`, `1/s`, `%`, `x`.
    pub unit: String,
    /// How many runs stand behind `value`.
    pub runs: u32,
    /// The least of these runs.
    pub min: f64,
    /// The greatest of these runs.
    pub max: f64,
    /// Whether the row may be quoted.
    pub valid: bool,
    /// Anything a reader must know; why runs are invalid.
    #[serde(default)]
    pub note: String,
    /// The offered load in 1/s, where the row is a point of a curve over load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Samples behind the runs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Which way is better, where the unit does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<Better>,
    /// Values of invalid runs that `value` leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_runs: Vec<f64>,
}

impl Row {
    /// The median, least and greatest of `runs`.
    ///
    /// Invalid runs, and values that are not finite, are left out while any valid run exists, and kept in
    /// `invalid_runs` and `note`. Without a valid run the row is invalid, and its value is that of the
    /// invalid ones (0 if there is none).
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

    /// The same row as the point at offered load `per_s` of a curve.
    #[must_use]
    pub fn with_load(self, per_s: f64) -> Row {
        Row { load: Some(per_s).filter(|l| l.is_finite()), ..self }
    }

    /// The same row with the number of its samples.
    #[must_use]
    pub fn with_samples(self, samples: u64) -> Row {
        Row { samples: Some(samples), ..self }
    }

    /// The same row with `note` added to what its note says already.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Row {
        if !self.note.is_empty() && !note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
        self
    }

    /// The same row with its direction fixed.
    #[must_use]
    pub fn with_better(self, better: Better) -> Row {
        Row { better: Some(better), ..self }
    }

    /// Which way is better: as fixed, else higher for rates (`1/s`, `op/s`, `MB/s`), else lower.
    pub fn better(&self) -> Better {
        self.better.unwrap_or(if self.unit.ends_with("/s") {
            Better::Higher
        } else {
            Better::Lower
        })
    }

    /// The contradiction in the row's numbers, if there is one.
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

/// The middle of sorted values; of an even number, the mean of the two in the middle.
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
        if !reasons.contains(&run.why()) {
            reasons.push(run.why());
        }
    }
    match (runs.len(), invalid.len()) {
        (0, _) => "no run".into(),
        (_, 0) => String::new(),
        (all, bad) => format!("{bad} of {all} runs invalid ({})", reasons.join("; ")),
    }
}
