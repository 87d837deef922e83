//! RESP2, the protocol of Redis: an incremental reader of requests and a writer of replies.
//!
//! A request is an array of bulk strings, or one line of words as typed into telnet. The reader takes bytes
//! as they arrive and returns whole requests; it allocates only the arguments, and holds at most one line or
//! one argument of the stream (I2).
//!
//! A request outside the limits is answered with an error: an argument that is too long is skipped, so that
//! the connection stays in step. Bytes that are not RESP end the connection, since the start of the next
//! request is unknown.

use super::input::{Input, LineTooLong};
use super::resp_words;

/// Limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key; the server checks it, command by command.
    pub key: usize,
    /// Longest argument, which is the longest value.
    pub value: usize,
    /// Most arguments of a request.
    pub args: usize,
    /// Longest request: the sum of its arguments.
    pub request: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { key: 4096, value: 8 << 20, args: 1024, request: 16 << 20 }
    }
}

/// Longest line: an inline request, or the header of an array or argument.
pub const MAX_LINE: usize = 64 << 10;
/// Most bytes that a client can announce and have skipped; Redis refuses more too.
pub const MAX_SKIPPED: usize = 512 << 20;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The command's name and its arguments; never empty.
    Command(Vec<Vec<u8>>),
    /// An argument was longer than the limit and has been skipped.
    TooLong {
        /// The announced length.
        len: usize,
        /// The limit.
        limit: usize,
    },
}

/// Bytes that are not RESP; the connection ends after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line without an end.
    #[error("a line is longer than {MAX_LINE} bytes")]
    Line,
    /// The number of arguments is not a number, or too large.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// More arguments than the limit.
    #[error("a request has {0} arguments; at most {1} are allowed")]
    TooMany(usize, usize),
    /// An argument does not start with `$`.
    #[error("expected '$', got byte {0:#04x}")]
    NotBulk(u8),
    /// The length of an argument is not a number, or beyond [`MAX_SKIPPED`].
    #[error("invalid bulk length")]
    BulkLength,
    /// An argument is longer than announced.
    #[error("an argument does not end where its length says")]
    BulkEnd,
    /// Quotes that do not close.
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// The position of the reader in a request.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a request.
    Start,
    /// Before the header of an argument, with the number of arguments left.
    Header { left: usize },
    /// Inside an argument of `len` bytes, the first of `left`.
    Bulk { left: usize, len: usize },
    /// Inside an argument that is too long: `rest` bytes, line end included, are still to be skipped.
    Skip { left: usize, rest: usize },
}

/// The result of one step of the reader.
enum Step {
    /// The state changed; go on.
    Next(State),
    /// A request is complete.
    Done,
    /// The buffer is exhausted.
    NeedMore,
}

/// The incremental reader of one connection.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    input: Input,
    state: State,
    args: Vec<Vec<u8>>,
    /// Bytes in `args`.
    held: usize,
    too_long: Option<usize>,
    /// Set by the first error: nothing after it can be trusted.
    failed: Option<ProtocolError>,
}

impl Reader {
    /// A reader at the start of a connection.
    pub fn new(limits: Limits) -> Reader {
        Reader {
            limits,
            input: Input::default(),
            state: State::Start,
            args: Vec::new(),
            held: 0,
            too_long: None,
            failed: None,
        }
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
        !self.input.rest().is_empty() || !matches!(self.state, State::Start)
    }

    /// Bytes of memory held.
    pub fn held(&self) -> usize {
        /// An allocator's size for the shortest argument.
        const LEAST: usize = 32;
        let args = self.args.capacity() * size_of::<Vec<u8>>() + self.args.len() * LEAST;
        self.input.capacity() + self.held + args
    }

    /// Frees the memory of completed requests; called before a wait.
    pub fn settle(&mut self) {
        self.input.settle();
    }

    /// Returns the next whole request; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// [`ProtocolError`]; every later call returns the same one.
    pub fn next_request(&mut self) -> Result<Option<Request>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        loop {
            match self.step() {
                Ok(Step::Next(state)) => self.state = state,
                Ok(Step::NeedMore) => return Ok(None),
                Ok(Step::Done) => {
                    self.state = State::Start;
                    self.held = 0;
                    let args = std::mem::take(&mut self.args);
                    return Ok(Some(match self.too_long.take() {
                        Some(len) => Request::TooLong { len, limit: self.limits.value },
                        None => Request::Command(args),
                    }));
                }
                Err(error) => {
                    // What was read so far is useless now, and can be large.
                    (self.args, self.input) = (Vec::new(), Input::default());
                    self.held = 0;
                    self.failed = Some(error);
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self) -> Result<Step, ProtocolError> {
        match self.state {
            State::Start => self.start(),
            State::Header { left } => self.header(left),
            State::Bulk { left, len } => self.bulk(left, len),
            State::Skip { left, rest } => Ok(self.skip(left, rest)),
        }
    }

    fn start(&mut self) -> Result<Step, ProtocolError> {
        let Some(line) = self.line()? else { return Ok(Step::NeedMore) };
        let line = self.input.bytes(line);
        if line.first() != Some(&b'*') {
            self.args = resp_words::split(line).ok_or(ProtocolError::Quotes)?;
            check_count(self.args.len(), self.limits)?;
            return Ok(if self.args.is_empty() { Step::Next(State::Start) } else { Step::Done });
        }
        let count = integer(&line[1..]).ok_or(ProtocolError::ArrayLength)?;
        // Redis ignores `*0` and `*-1` as it ignores an empty line.
        let Ok(left) = usize::try_from(count) else { return Ok(Step::Next(State::Start)) };
        check_count(left, self.limits)?;
        Ok(Step::Next(if left == 0 { State::Start } else { State::Header { left } }))
    }

    fn header(&mut self, left: usize) -> Result<Step, ProtocolError> {
        let Some(line) = self.line()? else { return Ok(Step::NeedMore) };
        let line = self.input.bytes(line);
        match line.first() {
            Some(b'$') => {}
            other => return Err(ProtocolError::NotBulk(other.copied().unwrap_or(b'\r'))),
        }
        let len = integer(&line[1..])
            .and_then(|len| usize::try_from(len).ok())
            .filter(|len| *len <= MAX_SKIPPED)
            .ok_or(ProtocolError::BulkLength)?;
        if len <= self.limits.value && self.held + len <= self.limits.request {
            return Ok(Step::Next(State::Bulk { left, len }));
        }
        self.too_long = Some(len);
        Ok(Step::Next(State::Skip { left, rest: len + 2 }))
    }

    fn bulk(&mut self, left: usize, len: usize) -> Result<Step, ProtocolError> {
        let rest = self.input.rest();
        let Some(end) = rest.get(len..len + 2) else { return Ok(Step::NeedMore) };
        if end != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        // A request with an argument that is too long is refused as a whole: none of it is kept.
        if self.too_long.is_none() {
            self.args.push(rest[..len].to_vec());
            self.held += len;
        }
        self.input.consume(len + 2);
        Ok(after_argument(left))
    }

    fn skip(&mut self, left: usize, rest: usize) -> Step {
        let now = rest.min(self.input.rest().len());
        self.input.consume(now);
        match rest - now {
            0 => {
                self.args.clear();
                after_argument(left)
            }
            _ if now == 0 => Step::NeedMore,
            rest => Step::Next(State::Skip { left, rest }),
        }
    }

    fn line(&mut self) -> Result<Option<std::ops::Range<usize>>, ProtocolError> {
        self.input.line(MAX_LINE).map_err(|LineTooLong| ProtocolError::Line)
    }
}

fn after_argument(left: usize) -> Step {
    match left - 1 {
        0 => Step::Done,
        left => Step::Next(State::Header { left }),
    }
}

fn check_count(args: usize, limits: Limits) -> Result<(), ProtocolError> {
    if args <= limits.args { Ok(()) } else { Err(ProtocolError::TooMany(args, limits.args)) }
}

/// A decimal integer with an optional minus, and nothing else.
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends `+text`.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    end_line(out, text.as_bytes());
}

/// Appends `-text`; by convention the text starts with a word in capitals, `ERR` mostly. Line ends in
/// it turn into spaces, since they would end the reply.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    let line: Vec<u8> =
        text.bytes().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }).collect();
    end_line(out, &line);
}

/// Appends an integer.
pub fn int(out: &mut Vec<u8>, value: i64) {
    header(out, b':', value);
}

/// Appends a bulk string.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len() as i64);
    end_line(out, bytes);
}

/// Appends the nil reply.
pub fn nil(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// Appends the header of an array of `len` replies, which the caller appends next.
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len as i64);
}

fn header(out: &mut Vec<u8>, kind: u8, value: i64) {
    use std::io::Write;
    out.push(kind);
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{value}\r\n");
}

fn end_line(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "resp_tests.rs"]
mod tests;
