//! Recorded requests.

use super::table::{Column, Table};
use super::{FileError, FileProblem};
use heddle_core::{Class, Ns};
use std::io::{self, Write};
use std::path::Path;

const COLUMNS: &[Column] =
    &[("arrival", true), ("service", true), ("class", false), ("name", false)];
const ARRIVAL: usize = 0;
const SERVICE: usize = 1;
const CLASS: usize = 2;
const NAME: usize = 3;

/// The name of a request without one.
const NAMELESS: &str = "request";

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Its arrival, since the beginning of the trace.
    pub arrival: Ns,
    /// How long it runs, at least 1 ns.
    pub service: Ns,
    /// The class that the policy sees; 0 if the trace gives none.
    pub class: Class,
    /// Its kind: an index into [`TraceReader::names`].
    pub kind: usize,
}

/// Reads a trace request by request; memory does not grow with its length.
///
/// A trace is a file of comma-separated values. Its header names the columns `arrival` and `service`
/// and, optionally, `class` (0 to 255) and `name`, in any order. Times are whole nanoseconds or texts
/// such as `1.5us`. Arrivals are in order of time; lines that start with `#` are comments.
///
/// ```text
/// # recorded on Monday
/// arrival,service,class,name
/// 0,950,0,get
/// 1.5us,591us,1,scan
/// ```
///
/// After an error the rest of the trace is meaningless.
pub struct TraceReader {
    table: Table,
    names: Vec<String>,
    last: Ns,
}

/// A summary of a trace, from reading it once.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSummary {
    /// How many requests, at least 1.
    pub requests: u64,
    /// The first arrival.
    pub first: Ns,
    /// From the first arrival to the last.
    pub span: Ns,
    /// The sum of all service times.
    pub busy: Ns,
    /// The mean service time, in ns.
    pub mean: f64,
    /// The mean of the square of the service time, in ns^2.
    pub second_moment: f64,
    /// The kinds of request, in the order of [`TraceRequest::kind`].
    pub names: Vec<String>,
}

impl TraceReader {
    /// The maximum number of distinct names in a trace.
    pub const NAMES: usize = 256;

    /// Opens a trace and reads its header.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or its header is not that of a trace.
    pub fn open(file: &Path) -> Result<TraceReader, FileError> {
        Ok(TraceReader { table: Table::open(file, COLUMNS)?, names: Vec::new(), last: Ns::ZERO })
    }

    /// Reads a whole trace, so that a run does not fail halfway.
    ///
    /// # Errors
    /// [`FileError`] for the first fault: an unreadable file, a bad header, a cell that is not a time,
    /// class or text, a service time of zero, missing cells, arrivals out of order, no requests.
    pub fn check(file: &Path) -> Result<TraceSummary, FileError> {
        let mut reader = TraceReader::open(file)?;
        let mut sum = TraceSummary::nothing();
        while let Some(request) = reader.read()? {
            sum.add(&request);
        }
        if sum.requests == 0 {
            return Err(reader.table.lacks(FileProblem::TooFewRows(1)));
        }
        let n = sum.requests as f64;
        let (mean, second_moment) = (sum.mean / n, sum.second_moment / n);
        Ok(TraceSummary { mean, second_moment, names: reader.names, ..sum })
    }

    /// Returns the names seen so far.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn read(&mut self) -> Result<Option<TraceRequest>, FileError> {
        if !self.table.next()? {
            return Ok(None);
        }
        let arrival = self.table.ns(ARRIVAL)?;
        if arrival < self.last {
            let (at, previous) = (arrival, self.last);
            return Err(self.table.wrong(FileProblem::OutOfOrder { at, previous }));
        }
        self.last = arrival;
        let service = self.table.some_time(SERVICE)?;
        Ok(Some(TraceRequest { arrival, service, class: self.class()?, kind: self.kind()? }))
    }

    fn class(&self) -> Result<Class, FileError> {
        match self.table.text(CLASS)? {
            "" => Ok(Class::default()),
            _ => self.table.number(CLASS, |_| true, "a whole number from 0 to 255").map(Class),
        }
    }

    /// Returns the index of the row's name. Names are few, and mostly the first: a linear search is
    /// fast.
    fn kind(&mut self) -> Result<usize, FileError> {
        let text = self.table.text(NAME)?;
        let name = if text.is_empty() { NAMELESS } else { text };
        match self.names.iter().position(|known| known == name) {
            Some(kind) => Ok(kind),
            None if self.names.len() == TraceReader::NAMES => {
                Err(self.table.wrong(FileProblem::TooManyNames(TraceReader::NAMES)))
            }
            None => {
                self.names.push(name.to_string());
                Ok(self.names.len() - 1)
            }
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRequest, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl TraceSummary {
    fn nothing() -> TraceSummary {
        let (first, span, busy) = (Ns::ZERO, Ns::ZERO, Ns::ZERO);
        let (requests, mean, second_moment, names) = (0, 0.0, 0.0, Vec::new());
        TraceSummary { requests, first, span, busy, mean, second_moment, names }
    }

    /// Adds a request; the two means are still sums.
    fn add(&mut self, request: &TraceRequest) {
        if self.requests == 0 {
            self.first = request.arrival;
        }
        self.requests += 1;
        self.span = request.arrival - self.first;
        self.busy += request.service;
        self.mean += request.service.0 as f64;
        self.second_moment += (request.service.0 as f64).powi(2);
    }

    /// Returns the requests per second from the first arrival to the last; none for a single instant.
    pub fn rate_per_s(&self) -> Option<f64> {
        (self.span > Ns::ZERO).then(|| (self.requests - 1) as f64 / self.span.as_secs_f64())
    }
}

/// Writes a trace that [`TraceReader`] reads.
///
/// ```
/// use heddle_core::{Class, Ns};
/// use heddle_sim::workload::TraceWriter;
/// let mut trace = TraceWriter::new(Vec::new()).unwrap();
/// trace.write(Ns(0), Ns(950), Class::LC, "get").unwrap();
/// assert_eq!(trace.finish().unwrap(), b"arrival,service,class,name\n0,950,0,get\n");
/// ```
pub struct TraceWriter<W: Write>(csv::Writer<W>);

impl<W: Write> TraceWriter<W> {
    /// Writes the header. Output is buffered.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(out: W) -> io::Result<TraceWriter<W>> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(COLUMNS.iter().map(|(name, _)| name))?;
        Ok(TraceWriter(writer))
    }

    /// Writes a request. The reader requires them in order of `arrival`, and `service` above zero;
    /// white space at the ends of `name` is lost, and an empty one is read as `request`.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write(&mut self, arrival: Ns, service: Ns, class: Class, name: &str) -> io::Result<()> {
        let Ns(arrival) = arrival;
        let cells = [arrival.to_string(), service.0.to_string(), class.0.to_string()];
        self.0.write_record(cells.iter().map(String::as_str).chain([name]))?;
        Ok(())
    }

    /// Flushes buffered data and returns the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(self) -> io::Result<W> {
        self.0.into_inner().map_err(|e| e.into_error())
    }
}
