//! What figures show, apart from how they are drawn.

use crate::pivot::distinct;
use crate::{Better, Results, Row};

/// A point of a curve: the median of its runs and their range.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Along the horizontal axis.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The least run.
    pub min: f64,
    /// The greatest run.
    pub max: f64,
    /// Whether it may be quoted; if not it is drawn hollow.
    pub valid: bool,
    /// Shown with the values; may be empty.
    pub note: String,
}

/// One system's curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The system; it has the same colour in every figure of the report.
    pub name: String,
    /// In any order; drawn from left to right.
    pub points: Vec<Point>,
    /// Drawn stronger than its peers.
    pub emphasis: bool,
}

/// An axis of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is shown: `offered load`.
    pub label: String,
    /// Its unit, as in [`Row::unit`](crate::Row).
    pub unit: String,
}

/// Curves over a common axis, for example latency against load. The reader can switch the vertical axis
/// between logarithmic and linear.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// What the figure shows.
    pub title: String,
    /// The horizontal axis, linear.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Below the figure; may be empty.
    pub caption: String,
}

impl LinePlot {
    /// One metric of one case over the offered load, a curve for each system. Rows without a load are
    /// left out.
    pub fn over_load(results: &Results, case: &str, metric: &str, title: &str) -> LinePlot {
        let rows: Vec<&Row> =
            results.rows.iter().filter(|r| r.case == case && r.metric == metric).collect();
        let curve = |system: &str| Series {
            name: system.to_owned(),
            points: rows.iter().filter(|r| r.system == system).filter_map(|r| point(r)).collect(),
            emphasis: false,
        };
        LinePlot {
            title: title.into(),
            x: Axis { label: "offered load".into(), unit: "1/s".into() },
            y: Axis {
                label: format!("{case} {metric}"),
                unit: rows.first().map_or(String::new(), |r| r.unit.clone()),
            },
            series: distinct(&rows, |r| &r.system).into_iter().map(curve).collect(),
            caption: String::new(),
        }
    }

    /// The same plot with a caption.
    #[must_use]
    pub fn caption(self, text: impl Into<String>) -> LinePlot {
        LinePlot { caption: text.into(), ..self }
    }

    /// The same plot with the curve of `system` drawn stronger.
    #[must_use]
    pub fn emphasise(mut self, system: &str) -> LinePlot {
        for series in self.series.iter_mut().filter(|s| s.name == system) {
            series.emphasis = true;
        }
        self
    }
}

fn point(row: &Row) -> Option<Point> {
    let Row { value, min, max, valid, note, .. } = row;
    row.load.map(|x| Point {
        x,
        y: *value,
        min: *min,
        max: *max,
        valid: *valid,
        note: note.clone(),
    })
}

/// One system's bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The system; it has the same colour in every figure of the report.
    pub system: String,
    /// The median.
    pub value: f64,
    /// The least run.
    pub min: f64,
    /// The greatest run.
    pub max: f64,
    /// Whether it may be quoted; if not it is drawn hollow.
    pub valid: bool,
    /// Shown with the values; may be empty.
    pub note: String,
}

/// The bars of one case, on a scale of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The case: `yield`.
    pub case: String,
    /// The unit of its values.
    pub unit: String,
    /// Which way is better: the best bar is set off.
    pub better: Better,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
    /// A value to reach, drawn across the bars.
    pub target: Option<f64>,
}

/// Panels of bars beside each other, one for each case.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// What the figure shows.
    pub title: String,
    /// The panels.
    pub panels: Vec<Panel>,
    /// Below the figure; may be empty.
    pub caption: String,
}

impl BarChart {
    /// One metric of all cases, a bar for each system. Rows with a load are left out.
    pub fn of(results: &Results, metric: &str, title: &str) -> BarChart {
        let rows: Vec<&Row> =
            results.rows.iter().filter(|r| r.metric == metric && r.load.is_none()).collect();
        let panels =
            crate::pivot::by_case(&rows).into_iter().map(|(case, rows)| panel(case, &rows));
        BarChart { title: title.into(), panels: panels.collect(), caption: String::new() }
    }

    /// The same chart with a caption.
    #[must_use]
    pub fn caption(self, text: impl Into<String>) -> BarChart {
        BarChart { caption: text.into(), ..self }
    }

    /// The same chart with a value to reach in the panel of `case`.
    #[must_use]
    pub fn target(mut self, case: &str, value: f64) -> BarChart {
        for panel in self.panels.iter_mut().filter(|p| p.case == case) {
            panel.target = Some(value);
        }
        self
    }
}

fn panel(case: &str, rows: &[&Row]) -> Panel {
    let bar = |row: &&Row| Bar {
        system: row.system.clone(),
        value: row.value,
        min: row.min,
        max: row.max,
        valid: row.valid,
        note: row.note.clone(),
    };
    Panel {
        case: case.into(),
        unit: rows.first().map_or(String::new(), |r| r.unit.clone()),
        better: rows.first().map_or(Better::Lower, |r| r.better()),
        bars: rows.iter().map(bar).collect(),
        target: None,
    }
}
