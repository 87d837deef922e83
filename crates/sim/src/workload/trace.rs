//! Recorded requests.

use super::table::{Column, Table};
use super::{FileError, FileProblem};
use heddle_core::{Class, Ns};
use std::io::{self, Write};
use std::path::Path;

const COLUMNS: &[Column] = &[
    ("arrival", true),
    ("service", true),
    ("class", false),
    ("name", false),
    ("connection", false),
    ("executor", false),
    ("wait", false),
];
const ARRIVAL: usize = 0;
const SERVICE: usize = 1;
const CLASS: usize = 2;
const NAME: usize = 3;
const CONNECTION: usize = 4;
const EXECUTOR: usize = 5;
const WAIT: usize = 6;

/// How many columns a trace has that says nothing of connections and workers.
const PLAIN: usize = 4;

/// The name of a request without one.
const NAMELESS: &str = "request";

/// A request of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRequest {
    /// Its arrival, since the beginning of the trace.
    pub arrival: Ns,
    /// How long it runs, at least 1 ns.
    pub service: Ns,
    /// The class that the policy sees; 0 if the trace gives none.
    pub class: Class,
    /// Its kind: an index into [`TraceReader::names`].
    pub kind: usize,
    /// Its connection, if the trace gives one: what a hash of flows looks at.
    pub connection: Option<u32>,
    /// The executor (socket, worker) that served it, if the trace gives one.
    pub executor: Option<u32>,
    /// How long its worker held it asleep besides; zero if the trace does not say.
    pub wait: Ns,
}

/// Reads a trace request by request; memory does not grow with its length.
///
/// A trace is a file of comma-separated values. Its header names the columns `arrival` and `service`
/// and, optionally, `class` (0 to 255), `name`, `connection`, `executor` (numbers) and `wait` (a time), in
/// any order; optional cells may be empty. Times are whole nanoseconds or texts such as `1.5us`. Arrivals
/// are in order of time; lines that start with `#` are comments.
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
    /// Whether any request has a connection.
    pub connections: bool,
    /// Whether any request has an executor.
    pub executors: bool,
    /// Whether any request waits.
    pub waits: bool,
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
        let (class, kind) = (self.class()?, self.kind()?);
        let (connection, executor) = (self.number(CONNECTION)?, self.number(EXECUTOR)?);
        let wait =
            if self.table.text(WAIT)?.is_empty() { Ns::ZERO } else { self.table.ns(WAIT)? };
        Ok(Some(TraceRequest { arrival, service, class, kind, connection, executor, wait }))
    }

    fn class(&self) -> Result<Class, FileError> {
        match self.table.text(CLASS)? {
            "" => Ok(Class::default()),
            _ => self.table.number(CLASS, |_| true, "a whole number from 0 to 255").map(Class),
        }
    }

    fn number(&self, column: usize) -> Result<Option<u32>, FileError> {
        match self.table.text(column)? {
            "" => Ok(None),
            _ => {
                self.table.number(column, |_| true, "a whole number from 0 to 4294967295").map(Some)
            }
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
        let (connections, executors, waits) = (false, false, false);
        TraceSummary {
            requests,
            first,
            span,
            busy,
            mean,
            second_moment,
            names,
            connections,
            executors,
            waits,
        }
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
        self.connections |= request.connection.is_some();
        self.executors |= request.executor.is_some();
        self.waits |= request.wait > Ns::ZERO;
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
pub struct TraceWriter<W: Write> {
    out: csv::Writer<W>,
    columns: usize,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header of a trace without connections, executors and waits. Output is buffered.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(out: W) -> io::Result<TraceWriter<W>> {
        TraceWriter::with(out, PLAIN)
    }

    /// Writes the header of a trace with all columns: of a service.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn of_service(out: W) -> io::Result<TraceWriter<W>> {
        TraceWriter::with(out, COLUMNS.len())
    }

    fn with(out: W, columns: usize) -> io::Result<TraceWriter<W>> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(COLUMNS[..columns].iter().map(|(name, _)| name))?;
        Ok(TraceWriter { out, columns })
    }

    /// Writes a request. The reader requires them in order of `arrival`, and `service` above zero;
    /// white space at the ends of `name` is lost, and an empty one is read as `request`.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write(&mut self, arrival: Ns, service: Ns, class: Class, name: &str) -> io::Result<()> {
        self.write_request(
            &TraceRequest { arrival, service, class, ..TraceRequest::default() },
            name,
        )
    }

    /// Writes a request under `name`, whatever its kind; as [`write`](TraceWriter::write).
    ///
    /// # Errors
    /// Errors of the output; `InvalidInput` if the request has what this trace has no column for.
    pub fn write_request(&mut self, request: &TraceRequest, name: &str) -> io::Result<()> {
        let TraceRequest { arrival, service, class, connection, executor, wait, .. } = *request;
        let number =
            |number: Option<u32>| number.map_or(String::new(), |number| number.to_string());
        let wait = if wait == Ns::ZERO { String::new() } else { wait.0.to_string() };
        let cells = [
            arrival.0.to_string(),
            service.0.to_string(),
            class.0.to_string(),
            name.into(),
            number(connection),
            number(executor),
            wait,
        ];
        let (cells, rest) = cells.split_at(self.columns);
        if rest.iter().any(|cell| !cell.is_empty()) {
            let why = "a connection, an executor or a wait; write the trace with `TraceWriter::of_service`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.out.write_record(cells)?;
        Ok(())
    }

    /// Flushes buffered data and returns the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(self) -> io::Result<W> {
        self.out.into_inner().map_err(|e| e.into_error())
    }
}
