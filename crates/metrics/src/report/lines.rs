//! Draws curves.

use std::fmt::Write;

use super::chart::{LinePlot, Point, Series};
use super::html::escape;
use super::palette::{Look, Palette};
use super::scale::Scale;
use super::svg::{line, path, shortened, spread, text};
use crate::human;
use crate::units::round;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 66.0;
/// The curves' names are printed to the right of this.
const RIGHT: f64 = 690.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 348.0;

/// A plot with its scales.
struct Layout<'a> {
    plot: &'a LinePlot,
    x: Scale,
    y: Scale,
}

/// Returns the figure as SVG, once with a logarithmic and once with a linear vertical axis.
pub(crate) fn draw(plot: &LinePlot, palette: &mut Palette) -> [String; 2] {
    let looks: Vec<Look> = plot.series.iter().map(|series| palette.look(&series.name)).collect();
    let points = || plot.series.iter().flat_map(drawable);
    let heights = || points().flat_map(|p| [p.y, p.min, p.max]);
    let x = Scale::linear(points().map(|p| p.x));
    [("logarithmic", Scale::log(heights())), ("linear", Scale::linear(heights()))]
        .map(|(kind, y)| Layout { plot, x, y }.svg(kind, &looks))
}

/// The points that can be drawn: values that are not finite have no position.
fn drawable(series: &Series) -> impl Iterator<Item = &Point> {
    series.points.iter().filter(|p| [p.x, p.y, p.min, p.max].iter().all(|v| v.is_finite()))
}

impl Layout<'_> {
    fn svg(&self, kind: &str, looks: &[Look]) -> String {
        let title = escape(&self.plot.title);
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}, {kind} axis\">\n"
        );
        out += &self.axes(kind);
        let curves: Vec<Vec<&Point>> = self.plot.series.iter().map(sorted).collect();
        for (points, look) in curves.iter().zip(looks) {
            out += &self.band(points, *look);
        }
        for ((series, points), look) in self.plot.series.iter().zip(&curves).zip(looks) {
            out += &self.curve(series, points, *look);
        }
        out += &self.names(&curves, looks);
        out + "</svg>\n"
    }

    fn position(&self, x: f64, y: f64) -> (f64, f64) {
        (LEFT + self.x.position(x) * (RIGHT - LEFT), BOTTOM - self.y.position(y) * (BOTTOM - TOP))
    }

    fn axes(&self, kind: &str) -> String {
        let plot = self.plot;
        let mut out = text("axis", 0.0, 14.0, &format!("{} ({kind})", plot.y.label));
        for tick in self.y.ticks() {
            let (_, y) = self.position(0.0, tick.value);
            out += &line(if tick.labelled { "grid" } else { "grid minor" }, (LEFT, y), (RIGHT, y));
            if tick.labelled {
                out += &text("tick end", LEFT - 8.0, y + 4.0, &round(tick.value, &plot.y.unit));
            }
        }
        for tick in self.x.ticks() {
            let (x, _) = self.position(tick.value, 0.0);
            out += &line("grid minor", (x, TOP), (x, BOTTOM));
            out += &text("tick mid", x, BOTTOM + 19.0, &round(tick.value, &plot.x.unit));
        }
        out += &line("base", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        out + &text("axis mid", (LEFT + RIGHT) / 2.0, BOTTOM + 42.0, &plot.x.label)
    }

    /// The range of the runs as a band along the curve, and a whisker at each point.
    fn band(&self, points: &[&Point], look: Look) -> String {
        let valid: Vec<&&Point> = points.iter().filter(|p| p.valid).collect();
        let upper = valid.iter().map(|p| self.position(p.x, p.max));
        let lower = valid.iter().rev().map(|p| self.position(p.x, p.min));
        let mut out = match valid.len() {
            0 | 1 => String::new(),
            _ => path(&format!("band {}", look.class()), &(polyline(upper.chain(lower)) + "Z")),
        };
        for p in points.iter().filter(|p| p.max > p.min) {
            out += &line(
                &format!("whisker {}", look.class()),
                self.position(p.x, p.min),
                self.position(p.x, p.max),
            );
        }
        out
    }

    /// The line, dashed next to invalid points, and the points with their tooltips.
    fn curve(&self, series: &Series, points: &[&Point], look: Look) -> String {
        let strong = if series.emphasis { " strong" } else { "" };
        let mut strokes = [String::new(), String::new()];
        for pair in points.windows(2) {
            let dashed = !(pair[0].valid && pair[1].valid);
            strokes[usize::from(dashed)] += &polyline(pair.iter().map(|p| self.position(p.x, p.y)));
        }
        let class = look.class();
        let mut out = path(&format!("curve {class}{strong}"), &strokes[0]);
        out += &path(&format!("curve dashed {class}{strong}"), &strokes[1]);
        for point in points {
            out += &self.marker(series, point, look);
        }
        out
    }

    fn marker(&self, series: &Series, point: &Point, look: Look) -> String {
        let (x, y) = self.position(point.x, point.y);
        let (unit, name) = (&self.plot.y.unit, escape(&series.name));
        let at = escape(&human(point.x, &self.plot.x.unit));
        let value = escape(&human(point.y, unit));
        let range = escape(&format!("{} … {}", human(point.min, unit), human(point.max, unit)));
        let note = escape(&note(point));
        let state = if point.valid { "" } else { " hollow" };
        format!(
            "<path class=\"pt {class}{state}\" d=\"{d}\" data-x=\"{x:.1}\" data-y=\"{y:.1}\" data-at=\"{at}\" \
             data-name=\"{name}\" data-value=\"{value}\" data-range=\"{range}\" data-note=\"{note}\">\
             <title>{name} at {at}: {value} ({range}) {note}</title></path>\n",
            class = look.class(),
            d = look.marker(x, y),
        )
    }

    /// The curves' names at their right ends, moved apart if they would overlap.
    fn names(&self, curves: &[Vec<&Point>], looks: &[Look]) -> String {
        let ends: Vec<(usize, (f64, f64))> = (curves.iter().enumerate())
            .filter_map(|(at, points)| points.last().map(|p| (at, self.position(p.x, p.y))))
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        let mut out = String::new();
        for ((at, end), y) in ends.iter().zip(spread(&wanted, 17.0, TOP, BOTTOM)) {
            let (series, look) = (&self.plot.series[*at], looks[*at]);
            let strong = if series.emphasis { " strong" } else { "" };
            out +=
                &line(&format!("leader {}", look.class()), (end.0 + 7.0, end.1), (RIGHT + 12.0, y));
            out += &path(&format!("key {}", look.class()), &look.marker(RIGHT + 18.0, y));
            out += &text(
                &format!("name {}{strong}", look.class()),
                RIGHT + 28.0,
                y + 4.5,
                &shortened(&series.name, 26),
            );
        }
        out
    }
}

/// The points from left to right.
fn sorted(series: &Series) -> Vec<&Point> {
    let mut points: Vec<&Point> = drawable(series).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn note(point: &Point) -> String {
    match (point.valid, point.note.is_empty()) {
        (true, _) => point.note.clone(),
        (false, true) => "invalid".into(),
        (false, false) => format!("invalid: {}", point.note),
    }
}

fn polyline(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    for (n, (x, y)) in points.enumerate() {
        let command = if n == 0 { 'M' } else { 'L' };
        let _ = write!(d, "{command}{x:.1} {y:.1}");
    }
    d
}
