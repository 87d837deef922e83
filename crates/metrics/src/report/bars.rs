//! Draws bars.

use super::chart::{Bar, Panel};
use super::html::escape;
use super::palette::{Look, Palette};
use super::svg::{line, shortened, text};
use crate::units::round;
use crate::{Better, human};

const WIDTH: f64 = 440.0;
const LEFT: f64 = 134.0;
/// The values of the longest bars are printed to the right of this.
const RIGHT: f64 = 350.0;
const ROW: f64 = 27.0;
const TOP: f64 = 8.0;
/// A bar this many times longer than the next would hide the differences among the others: it is cut short.
const OUTLIER: f64 = 4.0;

/// The panel's bars as SVG.
pub(crate) fn draw(panel: &Panel, palette: &mut Palette) -> String {
    let looks: Vec<Look> = panel.bars.iter().map(|bar| palette.look(&bar.system)).collect();
    let end = scale_end(panel);
    let below = if panel.target.is_some() { 20.0 } else { 4.0 };
    let bottom = TOP + ROW * panel.bars.len() as f64;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">\n",
        bottom + below,
        escape(&panel.case)
    );
    let row = |at: usize| TOP + ROW * at as f64;
    for (at, (bar, look)) in panel.bars.iter().zip(looks).enumerate() {
        out += &draw_bar(panel, bar, look, row(at), end);
    }
    out += &line("base", (LEFT, TOP - 4.0), (LEFT, bottom));
    out += &panel.target.map_or(String::new(), |target| draw_target(panel, target, bottom, end));
    // On top of the target's line, which would cross them out.
    out.extend(
        panel.bars.iter().enumerate().map(|(at, bar)| draw_labels(panel, bar, row(at), end)),
    );
    out + "</svg>\n"
}

/// Whether a bar of the panel is cut short.
pub(crate) fn has_cut(panel: &Panel) -> bool {
    panel.bars.iter().any(|bar| bar.value > scale_end(panel))
}

/// The value at the right end. Neither a single outlier nor one long whisker sets it. Of two bars none is an
/// outlier: their ratio is what the figure shows.
fn scale_end(panel: &Panel) -> f64 {
    let mut values: Vec<f64> =
        panel.bars.iter().map(|b| b.value).filter(|v| v.is_finite()).collect();
    values.sort_by(|a, b| b.total_cmp(a));
    let longest = match values[..] {
        [first, second, _, ..] if second > 0.0 && first > second * OUTLIER => second * 1.3,
        [first, ..] => first,
        [] => 0.0,
    };
    let whiskers = panel.bars.iter().map(|b| b.max).filter(|&m| m <= longest * 1.4);
    let end = whiskers.chain(panel.target).fold(longest, f64::max);
    if end > 0.0 { end } else { 1.0 }
}

fn position(value: f64, end: f64) -> f64 {
    LEFT + (value / end).clamp(0.0, 1.0) * (RIGHT - LEFT)
}

fn draw_bar(panel: &Panel, bar: &Bar, look: Look, y: f64, end: f64) -> String {
    let right = position(bar.value, end);
    let hollow = if bar.valid { "" } else { " hollow" };
    let range = format!("{} … {}", human(bar.min, &panel.unit), human(bar.max, &panel.unit));
    let tip = escape(&format!(
        "{}: {} ({range}) {}",
        bar.system,
        human(bar.value, &panel.unit),
        bar.note
    ));
    let mut out = format!("<g data-tip=\"{tip}\"><title>{tip}</title>\n");
    out += &format!(
        "<rect class=\"bar {}{hollow}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
        look.class(),
        (right - LEFT).max(1.0),
        ROW - 7.0
    );
    if bar.value > end {
        out += &cut(right, y);
    } else if bar.max > bar.min {
        out += &whisker(position(bar.min, end), position(bar.max, end), middle(y));
    }
    out + "</g>\n"
}

/// The system before its bar, the value after bar and whisker.
fn draw_labels(panel: &Panel, bar: &Bar, y: f64, end: f64) -> String {
    let strong = if is_best(panel, bar) { " strong" } else { "" };
    let sign = if bar.valid { "" } else { " !" };
    let value = format!("{}{sign}", human(bar.value, &panel.unit));
    let right = position(bar.value.max(bar.max), end);
    text(&format!("label end{strong}"), LEFT - 8.0, middle(y) + 4.5, &shortened(&bar.system, 17))
        + &text(&format!("value{strong}"), right + 7.0, middle(y) + 4.5, &value)
}

/// The vertical position of the text and the whisker of a row.
fn middle(y: f64) -> f64 {
    y + (ROW - 7.0) / 2.0
}

/// Two gaps across the bar: it is not to scale.
fn cut(right: f64, y: f64) -> String {
    let gap = |x: f64| line("gap", (x - 4.0, y + ROW - 5.0), (x + 4.0, y - 2.0));
    gap(right - 16.0) + &gap(right - 24.0)
}

fn whisker(from: f64, to: f64, y: f64) -> String {
    let end = |x: f64| line("range", (x, y - 4.0), (x, y + 4.0));
    line("range", (from, y), (to, y)) + &end(from) + &end(to)
}

fn draw_target(panel: &Panel, target: f64, bottom: f64, end: f64) -> String {
    let x = position(target, end);
    let label = format!("target: {}", round(target, &panel.unit));
    line("target", (x, TOP - 4.0), (x, bottom + 2.0)) + &text("tick mid", x, bottom + 15.0, &label)
}

fn is_best(panel: &Panel, bar: &Bar) -> bool {
    let valid = || panel.bars.iter().filter(|b| b.valid);
    bar.valid
        && valid().count() > 1
        && valid().all(|other| match panel.better {
            Better::Lower => bar.value <= other.value,
            Better::Higher => bar.value >= other.value,
        })
}
