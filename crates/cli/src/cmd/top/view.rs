//! The screen.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table, TableState};

use heddle_metrics::human;

use super::app::App;
use super::row::{COLUMNS, Figures, Interval, Ran, Row};

const KEYS: &str = "arrows select   Enter layers   s sort   q quit";
const KEYS_OPEN: &str = "arrows scroll   Esc back   q quit";
/// Widths of [`COLUMNS`].
const WIDTHS: [u16; 10] = [6, 7, 7, 8, 8, 11, 8, 9, 9, 5];
const NAME_WIDTH: u16 = 22;
const POLICY_WIDTH: u16 = 14;
/// Who ran meanwhile, at most.
const RAN: u16 = 6;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let missing = app.interval.as_ref().map_or(0, |interval| interval.missing.len());
    let missing = u16::try_from(missing.min(4)).unwrap_or(4);
    let [head, body, notes, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(missing),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(title(app)).style(bold()), head);
    match (&app.interval, app.selected()) {
        (Some(interval), Some(row)) if app.is_open => draw_layers(frame, body, app, row, interval),
        (Some(_), _) => draw_services(frame, body, app),
        (None, _) => frame.render_widget(Paragraph::new("Measuring the first interval."), body),
    }
    let lines: Vec<Line<'_>> = app
        .interval
        .iter()
        .flat_map(|interval| &interval.missing)
        .map(|why| Line::from(format!("missing: {why}")))
        .collect();
    frame.render_widget(Paragraph::new(lines).style(dim()), notes);
    let keys = if app.is_open { KEYS_OPEN } else { KEYS };
    frame.render_widget(Paragraph::new(keys).style(dim()).alignment(Alignment::Left), foot);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn title(app: &App) -> String {
    let Some(interval) = &app.interval else { return "heddle top".into() };
    let services = interval.services.len();
    let sort = app.sort.map_or_else(String::new, |column| format!(", by {}", COLUMNS[column]));
    match app.selected().filter(|_| app.is_open) {
        Some(row) => format!("heddle top: {} ({}, {})", row.name, row.kind.name(), processes(row)),
        None => format!("heddle top: {services} services, {:.1} s{sort}", interval.seconds),
    }
}

fn processes(row: &Row) -> String {
    match row.processes[..] {
        [] => "no process".into(),
        [pid] => format!("process {pid}"),
        [pid, ..] => format!("process {pid} and {} more", row.processes.len() - 1),
    }
}

fn header<'a>(first: [&'a str; 2], sort: Option<usize>) -> Cells<'a> {
    let names = COLUMNS.iter().enumerate().map(|(at, name)| {
        let style = if sort == Some(at) {
            Style::new().add_modifier(Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        Cell::from(Line::from(Span::styled(*name, style)).alignment(Alignment::Right))
    });
    Cells::new(first.into_iter().map(Cell::from).chain(names)).style(bold())
}

fn cells<'a>(first: [String; 2], figures: &Figures) -> Cells<'a> {
    let right = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
    Cells::new(first.into_iter().map(Cell::from).chain(figures.cells().map(right)))
}

fn widths(name: u16, policy: u16) -> Vec<Constraint> {
    let all = [name, policy].into_iter().chain(WIDTHS);
    all.map(Constraint::Length).collect()
}

fn draw_services(frame: &mut Frame<'_>, area: Rect, app: &App) {
    if app.services().is_empty() {
        let text = "No service: no program with a Heddle runtime or an event queue, no attachment, no enclave, no \
            share. Name one with --pid or --port.";
        frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
        return;
    }
    let rows = app.services().iter();
    let rows = rows.map(|row| cells([row.name.clone(), row.policy.clone()], &row.figures));
    let table = Table::new(rows, widths(NAME_WIDTH, POLICY_WIDTH))
        .header(header(["service", "policy"], app.sort))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(app.at()));
}

fn draw_layers(frame: &mut Frame<'_>, area: Rect, app: &App, row: &Row, interval: &Interval) {
    let [parts, ran] =
        Layout::vertical([Constraint::Min(4), Constraint::Length(RAN + 2)]).areas(area);
    let rows = row.parts.iter().skip(app.scroll);
    let rows = rows.map(|part| cells([part.name.clone(), String::new()], &part.figures));
    let whole = cells(["all".into(), row.policy.clone()], &row.figures);
    let table =
        Table::new(std::iter::once(whole).chain(rows), widths(NAME_WIDTH + POLICY_WIDTH - 1, 1))
            .header(header(["layer", ""], None));
    frame.render_widget(table, parts);
    let lines = match &interval.ran_meanwhile {
        None => vec![Line::from("Who ran while threads waited: known to root only.")],
        Some(all) if all.is_empty() => vec![Line::from("No thread of a service waited for a CPU.")],
        Some(all) => ran_lines(all),
    };
    frame.render_widget(Paragraph::new(lines), ran);
}

fn ran_lines(all: &[Ran]) -> Vec<Line<'static>> {
    let head = Line::from(Span::styled("Ran while threads of services waited", bold()));
    let line = |one: &Ran| {
        let time = human(one.delayed_ns as f64, "ns");
        Line::from(format!("  {} {}: {time}", one.name, one.thread))
    };
    std::iter::once(head).chain(all.iter().take(RAN.into()).map(line)).collect()
}
