//! Tables, rendered here for terminals and by the report for browsers.

use std::env;
use std::io::IsTerminal;

/// How a cell is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Not marked.
    #[default]
    Plain,
    /// The best among its peers; followed by `*`.
    Best,
    /// From an invalid run, not to be quoted; followed by `!`.
    Invalid,
    /// Good news. Shown by colour only: the text must say so too.
    Good,
    /// Bad news. Shown by colour only.
    Bad,
}

impl Mark {
    /// The sign that follows a cell.
    fn sign(self) -> &'static str {
        match self {
            Mark::Best => "*",
            Mark::Invalid => "!",
            Mark::Plain | Mark::Good | Mark::Bad => " ",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text. Control characters are shown as the replacement character.
    pub text: String,
    /// How it is marked.
    pub mark: Mark,
    /// Whether it is a number; a column of numbers is aligned to the right.
    pub number: bool,
}

impl Cell {
    /// Returns a cell of text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Returns a cell with a number, formatted by the caller (see [`human`](crate::human)).
    pub fn number(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), number: true, ..Cell::default() }
    }

    /// Returns the same cell, marked.
    #[must_use]
    pub fn marked(self, mark: Mark) -> Cell {
        Cell { mark, ..self }
    }
}

/// A titled table with notes. Rows may be shorter than the head; excess cells of longer rows are dropped.
///
/// ```
/// use heddle_metrics::{Cell, Mark, Table, TextStyle};
///
/// let mut table = Table::new("CPU time per operation", ["system", "yield"]);
/// table.push(vec![Cell::text("heddle"), Cell::number("24.1 ns").marked(Mark::Best)]);
/// table.push(vec![Cell::text("tokio"), Cell::number("96 ns")]);
/// assert_eq!(
///     table.to_text(TextStyle::PLAIN),
///     "CPU time per operation\nsystem    yield\nheddle  24.1 ns*\ntokio     96 ns\n  * best\n"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The title; may be empty.
    pub title: String,
    /// The column names.
    pub head: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<Cell>>,
    /// Notes below the table, a line each.
    pub notes: Vec<String>,
}

/// How text is styled for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether to use ANSI escape codes.
    pub colour: bool,
}

impl TextStyle {
    /// No colour: for files and pipes.
    pub const PLAIN: TextStyle = TextStyle { colour: false };

    /// Coloured only if `stream` is a terminal that supports colours and `NO_COLOR` is not set.
    pub fn for_stream(stream: &impl IsTerminal) -> TextStyle {
        let refused = env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        TextStyle { colour: stream.is_terminal() && !refused && !dumb }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Table {
    /// Returns an empty table with these columns.
    pub fn new<H: Into<String>>(
        title: impl Into<String>,
        head: impl IntoIterator<Item = H>,
    ) -> Table {
        let head = head.into_iter().map(Into::into).collect();
        Table { title: title.into(), head, ..Table::default() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Whether a column contains only numbers and is therefore aligned to the right.
    pub(crate) fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .filter(|c| !c.text.is_empty())
            .peekable();
        cells.peek().is_some() && cells.all(|cell| cell.number)
    }

    /// Explains the marks used in the table; empty if there are none.
    pub(crate) fn legend(&self) -> String {
        let used = |mark| self.rows.iter().flatten().any(|cell| cell.mark == mark);
        let parts = [(Mark::Best, "* best"), (Mark::Invalid, "! invalid run, do not quote")];
        let parts: Vec<&str> =
            parts.into_iter().filter(|&(mark, _)| used(mark)).map(|(_, t)| t).collect();
        parts.join("; ")
    }

    /// Returns the table as aligned text, with a newline after every line.
    pub fn to_text(&self, style: TextStyle) -> String {
        let mut lines = Vec::new();
        if !self.title.is_empty() {
            lines.push(style.paint("1", &printable(&self.title)));
        }
        let columns: Vec<Column> = (0..self.head.len()).map(|at| Column::of(self, at)).collect();
        let head = self.head.iter().zip(&columns).map(|(name, column)| column.head(name, style));
        lines.push(join(head));
        for row in &self.rows {
            let cells = columns.iter().enumerate().map(|(at, c)| c.cell(row.get(at), style));
            lines.push(join(cells));
        }
        let legend = self.legend();
        let below = std::iter::once(&legend).chain(&self.notes).filter(|line| !line.is_empty());
        lines.extend(below.map(|line| style.paint("2", &format!("  {}", printable(line)))));
        lines.join("\n") + "\n"
    }
}

/// The layout of one column.
struct Column {
    width: usize,
    right: bool,
    /// Whether space for `*` and `!` is reserved after the cells.
    marks: bool,
}

impl Column {
    fn of(table: &Table, at: usize) -> Column {
        let cells = || table.rows.iter().filter_map(|row| row.get(at));
        let head = table.head[at].chars().count();
        Column {
            width: cells().map(|cell| cell.text.chars().count()).fold(head, usize::max),
            right: table.is_numeric(at),
            marks: cells().any(|cell| cell.mark.sign() != " "),
        }
    }

    fn head(&self, name: &str, style: TextStyle) -> String {
        let text = self.pad(&printable(name));
        style.paint("4", text.trim_end()) + &text[text.trim_end().len()..] + self.mark(Mark::Plain)
    }

    fn cell(&self, cell: Option<&Cell>, style: TextStyle) -> String {
        let empty = Cell::default();
        let cell = cell.unwrap_or(&empty);
        let text = self.pad(&printable(&cell.text)) + self.mark(cell.mark);
        match cell.mark {
            Mark::Plain => text,
            Mark::Best | Mark::Good => style.paint("1;32", &text),
            Mark::Invalid | Mark::Bad => style.paint("31", &text),
        }
    }

    fn pad(&self, text: &str) -> String {
        let width = self.width;
        if self.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
    }

    fn mark(&self, mark: Mark) -> &'static str {
        if self.marks { mark.sign() } else { "" }
    }
}

fn join(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// Replaces control characters: a name must not move the cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
