//! From the bytes of a connection to requests.

use super::line::{self, Line};
use super::{Fatal, MAX_KEYS_LINE, MAX_LINE, MAX_VALUE, Refusal, Request, Store};
use crate::input::{Input, LineTooLong};

/// The first byte of a request of the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// The position in a request.
#[derive(Debug, Default)]
enum State {
    /// Before a line.
    #[default]
    Line,
    /// Inside a data block of this many bytes.
    Data(Store, usize),
    /// Inside a data block without use, of which this many bytes are left, its line end included.
    Skip(usize),
}

/// The incremental reader of one connection.
#[derive(Debug, Default)]
pub struct Reader {
    input: Input,
    state: State,
    /// Set by the first error: nothing after it can be trusted.
    failed: Option<Fatal>,
}

impl Reader {
    /// A reader at the start of a connection.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Takes bytes of the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        // After an error nothing is read: input would only accumulate.
        if self.failed.is_none() {
            self.input.push(bytes);
        }
    }

    /// Whether a request is incomplete.
    pub fn is_mid_request(&self) -> bool {
        !self.input.rest().is_empty() || !matches!(self.state, State::Line)
    }

    /// Bytes of memory held.
    pub fn held(&self) -> usize {
        self.input.capacity()
    }

    /// Frees the memory of completed requests; called before a wait.
    pub fn settle(&mut self) {
        self.input.settle();
    }

    /// Returns the next whole request; `None` until more bytes are pushed.
    ///
    /// A refused storage command is returned before its data block has arrived, which is then skipped.
    ///
    /// # Errors
    /// [`Fatal`]; every later call returns the same one.
    pub fn next_request(&mut self) -> Result<Option<Request>, Fatal> {
        if let Some(fatal) = self.failed {
            return Err(fatal);
        }
        loop {
            match std::mem::take(&mut self.state) {
                State::Line => match self.line() {
                    Ok(None) => return Ok(None),
                    Ok(Some(line)) => {
                        if let Some(request) = self.begin(line) {
                            return Ok(Some(request));
                        }
                    }
                    Err(fatal) => {
                        (self.input, self.failed) = (Input::default(), Some(fatal));
                        return Err(fatal);
                    }
                },
                State::Data(command, len) => return Ok(self.data(command, len)),
                State::Skip(left) => {
                    let now = left.min(self.input.rest().len());
                    self.input.consume(now);
                    if now < left {
                        self.state = State::Skip(left - now);
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn line(&mut self) -> Result<Option<Line>, Fatal> {
        let rest = self.input.rest();
        if rest.first() == Some(&BINARY_MAGIC) {
            return Err(Fatal::Binary);
        }
        let start = &rest[..rest.len().min(MAX_LINE)];
        let most = if line::names_many_keys(start) { MAX_KEYS_LINE } else { MAX_LINE };
        let range = self.input.line(most).map_err(|LineTooLong| Fatal::Line)?;
        Ok(range.map(|range| line::parse(self.input.bytes(range))))
    }

    /// Begins the data block of a line; returns the request if it needs none.
    fn begin(&mut self, line: Line) -> Option<Request> {
        let (request, len) = match line {
            Line::Whole(request) => return Some(request),
            Line::WithData(command, len) if len <= MAX_VALUE => {
                self.state = State::Data(command, len);
                return None;
            }
            Line::WithData(command, len) => (Request::TooLarge(command), len),
            Line::WithoutUse(refusal, reply, len) => (Request::Refused(refusal, reply), len),
        };
        self.state = State::Skip(len + 2);
        Some(request)
    }

    fn data(&mut self, command: Store, len: usize) -> Option<Request> {
        let rest = self.input.rest();
        let Some(end) = rest.get(len..len + 2) else {
            self.state = State::Data(command, len);
            return None;
        };
        let request = if end == b"\r\n" {
            Request::Store { value: rest[..len].to_vec(), command }
        } else {
            Request::Refused(Refusal::DataEnd, command.reply)
        };
        self.input.consume(len + 2);
        Some(request)
    }
}
