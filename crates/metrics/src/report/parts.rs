//! Renders the parts of a page as HTML.

use super::bars;
use super::chart::{BarChart, LinePlot, Panel};
use super::html::{element, escape};
use super::lines;
use super::palette::Palette;
use crate::{Cell, Mark, Results, Row, Table, human};

/// With more rows than this the raw table starts folded.
const OPEN_ROWS: usize = 30;

pub(crate) fn plot(plot: &LinePlot, id: usize, palette: &mut Palette) -> String {
    let [log, linear] = lines::draw(plot, palette);
    let hollow = plot.series.iter().flat_map(|s| &s.points).any(|p| !p.valid);
    let legend =
        if hollow { " Hollow points come from invalid runs: do not quote them." } else { "" };
    let reading = format!("Lines connect medians; bands and whiskers span the runs.{legend}");
    format!(
        "<figure class=\"plot\" id=\"f{id}\">\n{title}\
         <input type=\"radio\" class=\"to-log\" name=\"f{id}\" id=\"f{id}-log\" checked>\
         <label for=\"f{id}-log\">log</label>\
         <input type=\"radio\" class=\"to-linear\" name=\"f{id}\" id=\"f{id}-linear\">\
         <label for=\"f{id}-linear\">linear</label>\n\
         <div class=\"canvas log\">{log}</div>\n<div class=\"canvas linear\">{linear}</div>\n\
         {caption}</figure>\n",
        title = element("h3", "", &plot.title),
        caption = element("figcaption", "", &join(&plot.caption, &reading)),
    )
}

pub(crate) fn bar_chart(chart: &BarChart, palette: &mut Palette) -> String {
    let panel = |panel: &Panel, palette: &mut Palette| {
        format!(
            "<div class=\"panel\">{}{}</div>\n",
            element("h4", "", &panel.case),
            bars::draw(panel, palette)
        )
    };
    let panels: String = chart.panels.iter().map(|p| panel(p, palette)).collect();
    let cut = if chart.panels.iter().any(bars::has_cut) {
        " A bar with two gaps is cut short; its number is exact."
    } else {
        ""
    };
    let reading =
        format!("Each panel has its own scale; whiskers span the runs; the best is in bold.{cut}");
    format!(
        "<figure class=\"bars\">\n{title}<div class=\"panels\">{panels}</div>\n{caption}</figure>\n",
        title = element("h3", "", &chart.title),
        caption = element("figcaption", "", &join(&chart.caption, &reading)),
    )
}

pub(crate) fn table(table: &Table) -> String {
    let class = |at: usize| if table.is_numeric(at) { " class=\"num\"" } else { "" };
    let mut out = element("h3", "", &table.title) + "<div class=\"scroll\"><table>\n<thead><tr>";
    for (at, name) in table.head.iter().enumerate() {
        out += &format!("<th{}>{}</th>", class(at), escape(name));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        let cells = row.iter().take(table.head.len()).enumerate();
        let cells: String = cells.map(|(at, cell)| table_cell(cell, class(at))).collect();
        out += &format!("<tr>{cells}</tr>\n");
    }
    out += "</tbody></table></div>\n";
    let below = std::iter::once(&table.legend())
        .chain(&table.notes)
        .map(|n| element("p", "note", n))
        .collect::<String>();
    out + &below
}

fn table_cell(cell: &Cell, class: &str) -> String {
    let (open, sign, close) = match cell.mark {
        Mark::Plain => ("", "", ""),
        Mark::Best => ("<b class=\"good\">", "&#8202;*", "</b>"),
        Mark::Good => ("<b class=\"good\">", "", "</b>"),
        Mark::Invalid => ("<span class=\"bad\">", "&#8202;!", "</span>"),
        Mark::Bad => ("<b class=\"bad\">", "", "</b>"),
    };
    format!("<td{class}>{open}{}{sign}{close}</td>", escape(&cell.text))
}

/// Every row of the results, as measured.
pub(crate) fn raw_rows(results: &Results) -> String {
    let head = ["system", "case", "metric", "load", "median", "min", "max", "runs", "note"];
    let mut raw = Table::new("", head);
    raw.rows = results.rows.iter().map(raw_row).collect();
    let open = if results.rows.len() <= OPEN_ROWS { " open" } else { "" };
    let summary = element("summary", "", &format!("All {} measurements", results.rows.len()));
    format!("<details{open}>{summary}{}</details>\n", table(&raw))
}

fn raw_row(row: &Row) -> Vec<Cell> {
    let number = |value| Cell::number(human(value, &row.unit));
    let mark = if row.valid { Mark::Plain } else { Mark::Invalid };
    vec![
        Cell::text(&row.system),
        Cell::text(&row.case),
        Cell::text(&row.metric),
        Cell::number(row.load.map_or(String::new(), |load| human(load, "1/s"))),
        number(row.value).marked(mark),
        number(row.min),
        number(row.max),
        Cell::number(row.runs.to_string()),
        Cell::text(&row.note),
    ]
}

/// The command, the machine and the date.
pub(crate) fn conditions(results: &Results) -> String {
    let machine = &results.machine;
    let item = |name: &str, value: String| format!("<dt>{name}</dt><dd>{value}</dd>\n");
    let command = format!("<code>{}</code>", escape(&results.command.join(" ")));
    format!(
        "<h2>Conditions</h2>\n<dl>\n{}{}{}</dl>\n",
        item("Machine", escape(&machine.summary())),
        item("Date", escape(&machine.date)),
        item("Command", command)
    )
}

fn join(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { format!("{first} {second}") }
}
