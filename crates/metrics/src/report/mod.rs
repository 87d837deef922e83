//! One HTML file that shows what was measured and contains the results.

mod bars;
mod chart;
mod html;
mod lines;
mod palette;
mod parts;
mod scale;
mod svg;

use std::path::Path;

pub use chart::{Axis, Bar, BarChart, LinePlot, Panel, Point, Series};

use crate::format::{EMBED_CLOSE, EMBED_OPEN};
use crate::{Error, Results, Table, write_atomically};
use html::{element, escape, escape_json};
use palette::Palette;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("hover.js");

/// A report: one sentence, then figures, tables and text in the order in which they are added, then all
/// rows, the conditions, and the results themselves for [`Results::read`].
///
/// The file is self-contained (no network, no other file), readable without JavaScript and on a phone,
/// follows the reader's light or dark scheme, and prints.
///
/// ```
/// use heddle_metrics::{BarChart, Collector, LinePlot, Report, Results, Run};
///
/// let mut collect = Collector::new();
/// collect.add("heddle", "yield", "cpu_ns_per_op", "ns", Run::ok(24.1));
/// collect.add("tokio", "yield", "cpu_ns_per_op", "ns", Run::ok(96.0));
/// collect.at_load(20e3).add("heddle", "get", "p99", "ns", Run::ok(41e3));
/// let results = Results::here(collect.into_rows());
///
/// let html = Report::new("Threads")
///     .headline("Heddle yields in 24 ns, tokio in 96 ns.")
///     .bars(BarChart::of(&results, "cpu_ns_per_op", "CPU time per operation").target("yield", 30.0))
///     .section("Key-value server", "95 % GET, 5 % SCAN, open loop.")
///     .plot(LinePlot::over_load(&results, "get", "p99", "GET p99 against load").emphasise("heddle"))
///     .notes("Two cores; ratios count, absolute times only beside their peers.")
///     .results(results.clone())
///     .to_html();
/// assert_eq!(Results::from_html("report", &html).unwrap(), results);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    title: String,
    headline: String,
    findings: Vec<String>,
    parts: Vec<Part>,
    notes: Vec<String>,
    results: Option<Results>,
}

#[derive(Clone, Debug)]
enum Part {
    Section(String, String),
    Fold(String, String),
    Plot(LinePlot),
    Bars(BarChart),
    Table(Table),
    Text(String),
}

impl Report {
    /// Returns an empty report.
    pub fn new(title: impl Into<String>) -> Report {
        Report { title: title.into(), ..Report::default() }
    }

    /// Sets the one sentence that states the main finding, in large type at the top. A second call
    /// replaces it: a page with two main findings has none.
    #[must_use]
    pub fn headline(self, sentence: impl Into<String>) -> Report {
        Report { headline: sentence.into(), ..self }
    }

    /// Adds findings of equal weight, as a list below the headline.
    #[must_use]
    pub fn findings(mut self, lines: impl IntoIterator<Item = String>) -> Report {
        self.findings.extend(lines);
        self
    }

    /// Starts a section with an introduction, which may be empty.
    #[must_use]
    pub fn section(self, title: impl Into<String>, introduction: impl Into<String>) -> Report {
        self.part(Part::Section(title.into(), introduction.into()))
    }

    /// Starts a folded section: what follows, up to the next section, is shown when the reader opens it.
    #[must_use]
    pub fn fold(self, title: impl Into<String>, introduction: impl Into<String>) -> Report {
        self.part(Part::Fold(title.into(), introduction.into()))
    }

    /// Adds curves.
    #[must_use]
    pub fn plot(self, plot: LinePlot) -> Report {
        self.part(Part::Plot(plot))
    }

    /// Adds bars.
    #[must_use]
    pub fn bars(self, chart: BarChart) -> Report {
        self.part(Part::Bars(chart))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Report {
        self.part(Part::Table(table))
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn text(self, paragraph: impl Into<String>) -> Report {
        self.part(Part::Text(paragraph.into()))
    }

    /// Adds a note to the conditions at the end, which a reader must know before quoting.
    #[must_use]
    pub fn notes(mut self, note: impl Into<String>) -> Report {
        self.notes.push(note.into());
        self
    }

    /// Sets the results that the report is about. They appear as a table of all rows, as conditions, and as
    /// embedded JSON.
    #[must_use]
    pub fn results(self, results: Results) -> Report {
        Report { results: Some(results), ..self }
    }

    fn part(mut self, part: Part) -> Report {
        self.parts.push(part);
        self
    }

    /// Writes the report, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Write`], with the path and the reason.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        write_atomically(path, &self.to_html())
    }

    /// Returns the report as the text of an HTML file.
    pub fn to_html(&self) -> String {
        let body = [self.header(), self.body(), self.measurements(), self.conditions()].concat();
        let data = self.results.as_ref().map_or(String::new(), embed);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
             <div id=\"tip\" hidden></div>\n{data}<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            escape(&self.title)
        )
    }

    fn header(&self) -> String {
        let about =
            |results: &Results| format!("{} · {}", results.machine.date, results.machine.summary());
        let about = self.results.as_ref().map_or(String::new(), about);
        let (title, about) = (element("h1", "", &self.title), element("p", "about", &about));
        let headline = element("p", "headline", &unbroken(&self.headline));
        format!("<header>\n{title}{about}{headline}{}</header>\n", list("findings", &self.findings))
    }

    fn body(&self) -> String {
        let mut palette = Palette::default();
        let mut out = String::new();
        let mut folded = "";
        for (id, part) in self.parts.iter().enumerate() {
            if matches!(part, Part::Section(..) | Part::Fold(..)) {
                out += std::mem::take(&mut folded);
            }
            out += &match part {
                Part::Section(title, text) => element("h2", "", title) + &element("p", "", text),
                Part::Fold(title, text) => {
                    folded = "</details>\n";
                    format!("<details class=\"fold\">{}", element("summary", "", title))
                        + &element("p", "", text)
                }
                Part::Plot(plot) => parts::plot(plot, id, &mut palette),
                Part::Bars(chart) => parts::bar_chart(chart, &mut palette),
                Part::Table(table) => parts::table(table),
                Part::Text(text) => element("p", "", text),
            };
        }
        out + folded
    }

    fn measurements(&self) -> String {
        self.results.as_ref().map_or(String::new(), parts::raw_rows)
    }

    fn conditions(&self) -> String {
        let conditions = self.results.as_ref().map_or(String::new(), parts::conditions);
        conditions + &list("notes", &self.notes)
    }
}

/// Joins each number to the word after it, which may be its unit: no line break comes between them.
fn unbroken(text: &str) -> String {
    let mut previous = ' ';
    let joined = text.chars().map(|c| {
        let after_number = previous.is_ascii_digit();
        previous = c;
        if c == ' ' && after_number { '\u{a0}' } else { c }
    });
    joined.collect()
}

fn list(class: &str, items: &[String]) -> String {
    let items: String = items.iter().map(|item| element("li", "", item)).collect();
    match items.is_empty() {
        true => items,
        false => format!("<ul class=\"{class}\">\n{items}</ul>\n"),
    }
}

fn embed(results: &Results) -> String {
    format!("{EMBED_OPEN}{}{EMBED_CLOSE}\n", escape_json(&results.to_json()))
}
