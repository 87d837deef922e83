//! The content of figures, separate from how they are drawn.

use crate::pivot::distinct;
use crate::{Better, Results, Row};

/// A point of a curve: the median of its runs and their range.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The lowest run.
    pub min: f64,
    /// The highest run.
    pub max: f64,
    /// Whether it may be quoted. If not, it is drawn hollow.
    pub valid: bool,
    /// Shown with the value; may be empty.
    pub note: String,
}

/// The curve of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The system. It has the same colour in every figure of the report.
    pub name: String,
    /// The points, in any order; drawn from left to right.
    pub points: Vec<Point>,
    /// Whether it is drawn thicker than its peers.
    pub emphasis: bool,
}

/// An axis of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity: `offered load`.
    pub label: String,
    /// Its unit, as in [`Row::unit`](crate::Row).
    pub unit: String,
}

/// Curves over a common axis, for example latency against load. The reader can switch the vertical axis
/// between logarithmic and linear.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// The title.
    pub title: String,
    /// The horizontal axis, linear.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// The text below the figure; may be empty.
    pub caption: String,
}

impl LinePlot {
    /// Returns one metric of one case against the offered load, with a curve for each system. Rows without a
    /// load are left out.
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

    /// Returns the same plot with a caption.
    #[must_use]
    pub fn caption(self, text: impl Into<String>) -> LinePlot {
        LinePlot { caption: text.into(), ..self }
    }

    /// Returns the same plot with the curve of `system` drawn thicker.
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

/// The bar of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The system. It has the same colour in every figure of the report.
    pub system: String,
    /// The median.
    pub value: f64,
    /// The lowest run.
    pub min: f64,
    /// The highest run.
    pub max: f64,
    /// Whether it may be quoted. If not, it is drawn hollow.
    pub valid: bool,
    /// Shown with the value; may be empty.
    pub note: String,
}

/// The bars of one case, on their own scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The case or title: `yield`.
    pub case: String,
    /// The unit of its values.
    pub unit: String,
    /// The better direction: the best bar is printed in bold.
    pub better: Better,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
    /// A target value, drawn across the bars.
    pub target: Option<f64>,
}

/// Panels of bars side by side, one for each case.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// The title.
    pub title: String,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The text below the figure; may be empty.
    pub caption: String,
}

impl BarChart {
    /// Returns one metric of all cases, with a bar for each system. Rows with a load are left out.
    pub fn of(results: &Results, metric: &str, title: &str) -> BarChart {
        let rows: Vec<&Row> =
            results.rows.iter().filter(|r| r.metric == metric && r.load.is_none()).collect();
        let panels =
            crate::pivot::by_case(&rows).into_iter().map(|(case, rows)| panel(case, &rows));
        BarChart { title: title.into(), panels: panels.collect(), caption: String::new() }
    }

    /// Returns several metrics at one offered load (1/s): a panel for each `(case, metric, title)`, with a bar
    /// for each system. A panel without rows is left out.
    pub fn at_load(
        results: &Results,
        load: f64,
        panels: &[(&str, &str, &str)],
        title: &str,
    ) -> BarChart {
        let at = |&(case, metric, title): &(&str, &str, &str)| {
            let wanted =
                |row: &&Row| row.load == Some(load) && row.case == case && row.metric == metric;
            let rows: Vec<&Row> = results.rows.iter().filter(wanted).collect();
            (!rows.is_empty()).then(|| panel(title, &rows))
        };
        let panels = panels.iter().filter_map(at).collect();
        BarChart { title: title.into(), panels, caption: String::new() }
    }

    /// Returns the same chart with a caption.
    #[must_use]
    pub fn caption(self, text: impl Into<String>) -> BarChart {
        BarChart { caption: text.into(), ..self }
    }

    /// Returns the same chart with a target value in the panel of `case`.
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
