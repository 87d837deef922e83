//! Files of comma-separated values with a header and `#` comments; errors name file and line.

use super::grammar::Shortened;
use csv::{ByteRecord, Reader, ReaderBuilder, Trim};
use heddle_core::Ns;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::{self, FromStr};

/// An invalid file.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", file.display(), line.map_or(String::new(), |line| format!(":{line}")))]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1, if a line is to blame.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: FileProblem,
}

/// What is wrong with a file, and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The system cannot read it.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// The file contains only comments.
    #[error("there is no header; expected {0}")]
    NoHeader(String),
    /// A required column is missing.
    #[error("the header has no column `{0}`; expected {1}")]
    NoColumn(&'static str, String),
    /// A column is unknown or there twice.
    #[error("column {number}, `{name}`, is unknown or there twice; expected {expected}")]
    Column {
        /// Its name.
        name: String,
        /// Its position, from 1.
        number: usize,
        /// The valid columns.
        expected: String,
    },
    /// Two columns that exclude each other.
    #[error("columns `{0}` and `{1}` exclude each other; expected one of them")]
    Either(&'static str, &'static str),
    /// A row with fewer or more cells than the header.
    #[error("{found} cells in this row; expected {expected} as in the header")]
    Width {
        /// Cells in the row.
        found: usize,
        /// Cells in the header.
        expected: usize,
    },
    /// A cell with an invalid value.
    #[error("{column} `{found}`; expected {expected}")]
    Cell {
        /// The column.
        column: &'static str,
        /// Its content.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A cell that is not text.
    #[error("{0} is not UTF-8; expected text")]
    NotUtf8(&'static str),
    /// An arrival earlier than the previous one.
    #[error(
        "arrival {at} is before the one above it, {previous}; expected arrivals in order of time"
    )]
    OutOfOrder {
        /// This arrival.
        at: Ns,
        /// The previous arrival.
        previous: Ns,
    },
    /// A column that says what the run does not model.
    #[error("column `{column}`: {why}")]
    NotModelled {
        /// The column.
        column: &'static str,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// A header without rows.
    #[error("there are no rows below the header; expected at least {0}")]
    TooFewRows(usize),
    /// More distinct names than are supported.
    #[error("more than {0} different names; expected names of kinds of request")]
    TooManyNames(usize),
}

/// A column: its name, and whether it is required.
pub(super) type Column = (&'static str, bool);

/// A file being read, row by row in constant memory.
pub(super) struct Table {
    file: PathBuf,
    reader: Reader<File>,
    row: ByteRecord,
    columns: &'static [Column],
    /// The position of each column in the file.
    places: Vec<Option<usize>>,
    width: usize,
}

impl Table {
    /// Opens `file` and reads its header, which must consist of `columns` in any order.
    pub fn open(file: &Path, columns: &'static [Column]) -> Result<Table, FileError> {
        let opened = File::open(file).map_err(|e| io_error(file, e))?;
        let mut reader = ReaderBuilder::new();
        let reader = reader.comment(Some(b'#')).trim(Trim::All).flexible(true).has_headers(false);
        let (file, reader) = (file.to_path_buf(), reader.from_reader(opened));
        let (row, places) = (ByteRecord::new(), Vec::new());
        let mut table = Table { file, reader, row, columns, places, width: usize::MAX };
        table.read_header()?;
        Ok(table)
    }

    fn read_header(&mut self) -> Result<(), FileError> {
        if !self.read()? {
            return Err(self.lacks(FileProblem::NoHeader(self.header())));
        }
        let (columns, row) = (self.columns, self.row.clone());
        let place = |name: &str| row.iter().position(|cell| cell == name.as_bytes());
        self.places = columns.iter().map(|&(name, _)| place(name)).collect();
        self.width = row.len();
        let mut unknown = (0..row.len()).filter(|i| !self.places.contains(&Some(*i)));
        if let Some(i) = unknown.next() {
            let (cell, number) = (String::from_utf8_lossy(&row[i]), i + 1);
            let name = Shortened(&cell).to_string();
            return Err(self.wrong(FileProblem::Column { name, number, expected: self.header() }));
        }
        match columns.iter().find(|&&(name, needed)| needed && place(name).is_none()) {
            Some(&(name, _)) => Err(self.wrong(FileProblem::NoColumn(name, self.header()))),
            None => Ok(()),
        }
    }

    /// Returns the columns as the header names them, optional ones in brackets.
    fn header(&self) -> String {
        let names = self.columns.iter().enumerate().map(|(i, &(name, needed))| {
            let comma = if i == 0 { "" } else { "," };
            if needed { format!("{comma}{name}") } else { format!("[{comma}{name}]") }
        });
        names.collect()
    }

    fn read(&mut self) -> Result<bool, FileError> {
        let read = self.reader.read_byte_record(&mut self.row);
        read.map_err(|e| io_error(&self.file, e.into()))
    }

    /// Reads the next row; returns false at the end.
    pub fn next(&mut self) -> Result<bool, FileError> {
        let more = self.read()?;
        match self.row.len() == self.width || !more {
            true => Ok(more),
            false => {
                let (found, expected) = (self.row.len(), self.width);
                Err(self.wrong(FileProblem::Width { found, expected }))
            }
        }
    }

    /// Returns the cell of the current row in column number `column`, empty if the file has no such
    /// column.
    pub fn text(&self, column: usize) -> Result<&str, FileError> {
        let cell = self.places[column].and_then(|place| self.row.get(place)).unwrap_or_default();
        let name = self.columns[column].0;
        str::from_utf8(cell).map_err(|_| self.wrong(FileProblem::NotUtf8(name)))
    }

    /// Returns the cell as a time: whole nanoseconds, or a number with its unit.
    pub fn ns(&self, column: usize) -> Result<Ns, FileError> {
        let text = self.text(column)?;
        let whole = text.bytes().all(|b| b.is_ascii_digit());
        let time = if whole { text.parse().ok().map(Ns) } else { text.parse().ok() };
        time.ok_or_else(|| self.cell(column, "whole nanoseconds from 0, or a time such as 1.5us"))
    }

    /// Returns the cell as a time above zero.
    pub fn some_time(&self, column: usize) -> Result<Ns, FileError> {
        let time = self.ns(column)?;
        match time > Ns::ZERO {
            true => Ok(time),
            false => Err(self.cell(column, "a time above zero")),
        }
    }

    /// Returns the cell as a number that satisfies `good`.
    pub fn number<T: FromStr>(
        &self,
        column: usize,
        good: impl Fn(&T) -> bool,
        expected: &'static str,
    ) -> Result<T, FileError> {
        let number = self.text(column)?.parse().ok().filter(good);
        number.ok_or_else(|| self.cell(column, expected))
    }

    /// Returns the error that a cell of the current row is not what is expected.
    pub fn cell(&self, column: usize, expected: &'static str) -> FileError {
        let found = Shortened(self.text(column).unwrap_or_default()).to_string();
        self.wrong(FileProblem::Cell { column: self.columns[column].0, found, expected })
    }

    /// Returns whether the file has this column.
    pub fn has(&self, column: usize) -> bool {
        self.places[column].is_some()
    }

    /// Returns an error in the current row.
    pub fn wrong(&self, problem: FileProblem) -> FileError {
        let start = self.row.position().map_or(0, |p| p.byte());
        FileError { file: self.file.clone(), line: line_at(&self.file, start).ok(), problem }
    }

    /// Returns an error of the file as a whole, for something missing.
    pub fn lacks(&self, problem: FileProblem) -> FileError {
        FileError { file: self.file.clone(), line: None, problem }
    }
}

fn io_error(file: &Path, error: io::Error) -> FileError {
    FileError { file: file.to_path_buf(), line: None, problem: FileProblem::Io(error) }
}

/// Returns the line of the row that the CSV reader places at byte `start`: the reader counts comments
/// and empty lines above a row as part of it. Reads the file again, because only errors need it.
fn line_at(file: &Path, start: u64) -> io::Result<u64> {
    let mut file = BufReader::new(File::open(file)?);
    let (mut byte, mut number, mut line) = (0, 1, Vec::new());
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line)?;
        let skipped = line.trim_ascii().is_empty() || line.starts_with(b"#");
        if read == 0 || (byte >= start && !skipped) {
            return Ok(number);
        }
        byte += read as u64;
        number += 1;
    }
}
