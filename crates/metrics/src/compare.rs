//! Compares two results: what got better, what got worse, and what is within the noise.

use serde::Serialize;

use crate::{Better, Cell, Machine, Mark, Results, Row, Table, human};

/// How a measurement changed from A to B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every run of B is better than every run of A.
    Better,
    /// Every run of B is worse than every run of A.
    Worse,
    /// The ranges of the runs overlap: no difference is measurable.
    WithinSpread,
    /// No verdict is possible; [`Change::note`] says why.
    Unclear,
}

impl Verdict {
    /// The name in tables and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::WithinSpread => "within-spread",
            Verdict::Unclear => "unclear",
        }
    }
}

/// One side of a [`Change`]: the median and range of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The median.
    pub value: f64,
    /// The lowest run.
    pub min: f64,
    /// The highest run.
    pub max: f64,
    /// The number of runs.
    pub runs: u32,
    /// Whether it may be quoted.
    pub valid: bool,
}

/// A measurement that both results contain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The system.
    pub system: String,
    /// The case.
    pub case: String,
    /// The metric.
    pub metric: String,
    /// The unit of both sides.
    pub unit: String,
    /// The offered load in 1/s, for points of curves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The first result.
    pub a: Side,
    /// The second result.
    pub b: Side,
    /// B's value over A's; absent if A's is 0 or the units differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Whether the ranges of the runs overlap.
    pub overlap: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// Why the verdict is unclear; empty otherwise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The comparison of two results; see [`compare`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Measurements in both, in A's order.
    pub changes: Vec<Change>,
    /// Measurements in A only: `system case metric load`.
    pub only_a: Vec<String>,
    /// Measurements in B only.
    pub only_b: Vec<String>,
    /// Differences between the machines that could explain differences in the values.
    pub warnings: Vec<String>,
}

/// Compares B with A, row by row: the same system, case, metric and load.
///
/// A difference counts only if the ranges of the runs do not overlap and each side has at least two runs:
/// on a noisy machine a single run shows nothing.
///
/// ```
/// use heddle_metrics::{Results, Row, Run, Verdict, compare};
///
/// let yields = |values: [f64; 3]| {
///     let runs = values.map(Run::ok);
///     Results::here(vec![Row::from_runs("heddle", "yield", "cpu_ns_per_op", "ns", &runs)])
/// };
/// let comparison = compare(&yields([30.0, 31.0, 29.0]), &yields([24.0, 25.0, 23.0]));
/// assert_eq!(comparison.changes[0].verdict, Verdict::Better);
/// assert_eq!(comparison.changes[0].ratio, Some(0.8));
/// ```
pub fn compare(a: &Results, b: &Results) -> Comparison {
    let twin = |row: &Row, of: &Results| of.rows.iter().position(|other| same(row, other));
    let pairs = a.rows.iter().filter_map(|row| twin(row, b).map(|at| (row, &b.rows[at])));
    let alone = |of: &Results, other: &Results| {
        of.rows.iter().filter(|row| twin(row, other).is_none()).map(name).collect()
    };
    Comparison {
        changes: pairs.map(|(a, b)| change(a, b)).collect(),
        only_a: alone(a, b),
        only_b: alone(b, a),
        warnings: condition_changes(&a.machine, &b.machine),
    }
}

fn same(a: &Row, b: &Row) -> bool {
    (&a.system, &a.case, &a.metric, a.load) == (&b.system, &b.case, &b.metric, b.load)
}

fn name(row: &Row) -> String {
    let load = row.load.map_or(String::new(), |load| format!(" at {}", human(load, "1/s")));
    format!("{} {} {}{load}", row.system, row.case, row.metric)
}

fn side(row: &Row) -> Side {
    Side { value: row.value, min: row.min, max: row.max, runs: row.runs, valid: row.valid }
}

fn change(a: &Row, b: &Row) -> Change {
    let overlap = a.min <= b.max && b.min <= a.max;
    let note = obstacle(a, b, overlap).unwrap_or_default();
    let gain = match a.better() {
        Better::Lower => b.value < a.value,
        Better::Higher => b.value > a.value,
    };
    let verdict = match (note.is_empty(), overlap, gain) {
        (false, ..) => Verdict::Unclear,
        (true, true, _) => Verdict::WithinSpread,
        (true, false, true) => Verdict::Better,
        (true, false, false) => Verdict::Worse,
    };
    Change {
        system: a.system.clone(),
        case: a.case.clone(),
        metric: a.metric.clone(),
        unit: a.unit.clone(),
        load: a.load,
        a: side(a),
        b: side(b),
        ratio: Some(b.value / a.value).filter(|r| a.unit == b.unit && r.is_finite()),
        overlap,
        verdict,
        note,
    }
}

/// What prevents a verdict, if anything.
fn obstacle(a: &Row, b: &Row, overlap: bool) -> Option<String> {
    if a.unit != b.unit {
        Some(format!("units differ: {} and {}", a.unit, b.unit))
    } else if a.better() != b.better() {
        Some("the results disagree on which direction is better".into())
    } else if !a.valid || !b.valid {
        let which = if a.valid { "B" } else { "A" };
        Some(format!("{which} has no valid run"))
    } else if !overlap && a.runs.min(b.runs) < 2 {
        Some("a single run has no spread".into())
    } else {
        None
    }
}

fn condition_changes(a: &Machine, b: &Machine) -> Vec<String> {
    let fields = [
        ("processors", a.cpu.clone(), b.cpu.clone()),
        ("usable cores", a.cores.to_string(), b.cores.to_string()),
        ("kernels", a.kernel.clone(), b.kernel.clone()),
        ("virtualisation", a.virtualised.to_string(), b.virtualised.to_string()),
    ];
    let differ = fields.into_iter().filter(|(_, a, b)| a != b);
    differ.map(|(name, a, b)| format!("{name} differ: {a} (A), {b} (B)")).collect()
}

impl Comparison {
    /// Returns the number of changes with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    /// Returns one line with the number of changes for each verdict.
    pub fn summary(&self) -> String {
        let verdicts = [Verdict::Better, Verdict::Worse, Verdict::WithinSpread, Verdict::Unclear];
        verdicts.map(|v| format!("{} {}", self.count(v), v.name())).join(", ")
    }

    /// Returns the comparison as a table: a line for each change, warnings below.
    pub fn to_table(&self) -> Table {
        let head = ["system", "case", "metric", "load", "A", "B", "B / A", "verdict"];
        let mut table = Table::new(format!("B against A: {}", self.summary()), head);
        table.rows = self.changes.iter().map(Change::cells).collect();
        let notes = self.changes.iter().filter(|c| !c.note.is_empty());
        table
            .notes
            .extend(notes.map(|c| format!("{} {} {}: {}", c.system, c.case, c.metric, c.note)));
        table.notes.extend(self.warnings.iter().cloned());
        table.notes.extend(self.only_a.iter().map(|name| format!("only in A: {name}")));
        table.notes.extend(self.only_b.iter().map(|name| format!("only in B: {name}")));
        table
    }

    /// Returns the comparison as one indented JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers always serialise")
    }
}

impl Change {
    fn cells(&self) -> Vec<Cell> {
        let value = |side: &Side| {
            let mark = if side.valid { Mark::Plain } else { Mark::Invalid };
            Cell::number(human(side.value, &self.unit)).marked(mark)
        };
        let verdict = match self.verdict {
            Verdict::Better => Mark::Good,
            Verdict::Worse => Mark::Bad,
            Verdict::WithinSpread | Verdict::Unclear => Mark::Plain,
        };
        vec![
            Cell::text(&self.system),
            Cell::text(&self.case),
            Cell::text(&self.metric),
            Cell::number(self.load.map_or(String::new(), |load| human(load, "1/s"))),
            value(&self.a),
            value(&self.b),
            Cell::number(self.ratio.map_or("-".into(), |r| format!("{r:.3}"))),
            Cell::text(self.verdict.name()).marked(verdict),
        ]
    }
}
