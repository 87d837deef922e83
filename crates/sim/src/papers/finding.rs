//! A paper's value next to the simulator's.

use super::published::Point;
use super::study::Metric;
use crate::Outcome;
use heddle_metrics::{Axis, LinePlot, Row, Run, Series};

/// One value: the paper's, if it gives one, and the simulator's.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The figure: `skyloft-7a`.
    pub figure: &'static str,
    /// The curve or system, as the paper calls it.
    pub system: String,
    /// What it is: `p99`, `saturation`.
    pub metric: &'static str,
    /// The unit of both values.
    pub unit: &'static str,
    /// Requests per second, for a point of a curve.
    pub load: Option<f64>,
    /// The paper's value.
    pub paper: Option<f64>,
    /// The simulator's value.
    pub value: f64,
    /// Half of the 95 % confidence interval of `value`; 0 if it has none.
    pub half_width: f64,
    /// Why `value` must not be quoted.
    pub invalid: Option<String>,
    /// Anything else a reader must know.
    pub note: String,
}

impl Finding {
    pub(super) fn value(
        figure: &'static str,
        system: &str,
        metric: &'static str,
        unit: &'static str,
        paper: Option<f64>,
        value: f64,
        note: &str,
    ) -> Finding {
        let (half_width, invalid, note) = (0.0, None, note.to_owned());
        let system = system.to_owned();
        Finding {
            figure,
            system,
            metric,
            unit,
            load: None,
            paper,
            value,
            half_width,
            invalid,
            note,
        }
    }

    /// Returns how much more load system `a` of `findings` takes than `b` before it saturates, as a
    /// headline of `figure`.
    pub(super) fn ratio(
        findings: &[Finding],
        figure: &'static str,
        [a, b]: [&str; 2],
        paper: f64,
        note: &str,
    ) -> Finding {
        let most = |system: &str| {
            let of = |f: &&Finding| f.system == system && f.metric == "saturation";
            findings.iter().find(of).map_or(f64::NAN, |f| f.value)
        };
        let (name, value) = (format!("{a} / {b}"), most(a) / most(b));
        Finding::value(figure, &name, "ratio", "x", Some(paper), value, note)
    }

    pub(super) fn point(
        figure: &'static str,
        system: &str,
        metric: &Metric,
        point: &Point,
        outcome: &Outcome,
    ) -> Finding {
        let (value, half_width) = (metric.of)(outcome);
        let invalid = outcome.unstable.map(|why| why.to_string());
        let paper = Some(point.value);
        let plain = Finding::value(figure, system, metric.name, metric.unit, paper, value, "");
        Finding { load: Some(point.load), half_width, invalid, ..plain }
    }

    /// Returns by how much the simulator is above the paper: 0.1 is 10 %.
    pub fn error(&self) -> Option<f64> {
        self.paper.map(|paper| self.value / paper - 1.0)
    }

    /// Returns the same as a row of the result format; the note has the paper's value and the error.
    pub fn row(&self) -> Row {
        let run = match &self.invalid {
            None => Run::ok(self.value),
            Some(why) => Run::invalid(self.value, why.clone()),
        };
        let row = Row::from_runs(&self.system, self.figure, self.metric, self.unit, &[run]);
        let row = self.load.into_iter().fold(row, Row::with_load);
        let against = self.paper.zip(self.error()).map_or(String::new(), |(paper, error)| {
            format!("paper {}, {:+.1} %", short(paper), error * 100.0)
        });
        row.with_note(&against).with_note(&self.note)
    }
}

/// Prints enough digits to compare by.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// Returns the rows of `findings`, in their order.
pub fn rows(findings: &[Finding]) -> Vec<Row> {
    findings.iter().map(Finding::row).collect()
}

/// Returns a plot for each figure and metric with curves: each system's published points and,
/// emphasised, the simulator's.
pub fn plots(findings: &[Finding]) -> Vec<LinePlot> {
    let mut figures: Vec<(&str, &str)> = Vec::new();
    for finding in findings.iter().filter(|f| f.load.is_some()) {
        if !figures.contains(&(finding.figure, finding.metric)) {
            figures.push((finding.figure, finding.metric));
        }
    }
    figures.into_iter().map(|(figure, metric)| plot(findings, figure, metric)).collect()
}

fn plot(findings: &[Finding], figure: &str, metric: &str) -> LinePlot {
    let of_plot = |f: &&Finding| f.figure == figure && f.metric == metric && f.load.is_some();
    let points: Vec<&Finding> = findings.iter().filter(of_plot).collect();
    let mut systems: Vec<&str> = points.iter().map(|f| f.system.as_str()).collect();
    systems.dedup();
    let unit = points.first().map_or("", |f| f.unit);
    LinePlot {
        title: format!("{figure}: {metric}, paper and simulator"),
        x: Axis { label: "offered load".into(), unit: "1/s".into() },
        y: Axis { label: metric.into(), unit: unit.into() },
        series: systems.iter().flat_map(|system| pair(&points, system)).collect(),
        caption: "Published points up to saturation; the simulator at the same loads, with its \
                  confidence interval."
            .into(),
    }
}

/// Returns the published curve of `system` and the simulated one.
fn pair(points: &[&Finding], system: &str) -> [Series; 2] {
    let point = |f: &Finding, y: f64, half: f64| heddle_metrics::Point {
        x: f.load.unwrap_or_default(),
        y,
        min: y - half,
        max: y + half,
        valid: f.invalid.is_none(),
        note: f.note.clone(),
    };
    let own = || points.iter().filter(|f| f.system == system);
    let finite = |half: f64| if half.is_finite() { half } else { 0.0 };
    let paper = own().filter_map(|f| f.paper.map(|paper| point(f, paper, 0.0))).collect();
    let simulated = own().map(|f| point(f, f.value, finite(f.half_width))).collect();
    [
        Series { name: format!("{system}, paper"), points: paper, emphasis: false },
        Series { name: format!("{system}, simulator"), points: simulated, emphasis: true },
    ]
}
