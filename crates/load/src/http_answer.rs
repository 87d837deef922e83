//! Finds the ends of HTTP/1.1 answers; a load generator needs no more of them.
//!
//! Bodies are skipped as they arrive and never kept: a scan's can be megabytes.

use httparse::{EMPTY_HEADER, Header, Response, Status, parse_chunk_size};
use std::io;

/// The longest head.
const MOST_HEAD: usize = 16 << 10;
/// The most fields of a head.
const MOST_FIELDS: usize = 64;
/// The longest chunk header, with its extensions, or trailer line.
const MOST_LINE: usize = 4 << 10;

/// Parser state for the answers of one connection.
#[derive(Debug, Default)]
pub struct Follow {
    part: Part,
    /// The status of the current answer.
    status: u16,
}

/// The next part of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// Its status and fields.
    #[default]
    Head,
    /// This many bytes, the last of the answer.
    Body(u64),
    /// The size of a chunk.
    Size,
    /// This many bytes of a chunk, including its line end.
    Chunk(u64),
    /// Trailer fields after the last chunk.
    Trailer,
    /// Nothing: it is complete.
    End,
}

/// The number of consumed bytes and the next part; `None` if more bytes are needed.
type Step = io::Result<Option<(usize, Part)>>;

impl Follow {
    /// Continues parsing; returns how many bytes were consumed, and the status of the answer that ended
    /// there, if one did.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is not HTTP/1.1, or closes the connection.
    pub fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<u16>)> {
        let mut done = 0;
        while let Some((len, part)) = self.step(&bytes[done..])? {
            done += len;
            self.part = part;
            if part == Part::End {
                self.part = Part::Head;
                return Ok((done, Some(self.status)));
            }
        }
        Ok((done, None))
    }

    fn step(&mut self, bytes: &[u8]) -> Step {
        match self.part {
            Part::Head => self.head(bytes),
            Part::Body(left) => Ok(pass(bytes, left, Part::Body, Part::End)),
            Part::Size => size(bytes),
            Part::Chunk(left) => Ok(pass(bytes, left, Part::Chunk, Part::Size)),
            Part::Trailer => trailer(bytes),
            Part::End => Ok(None),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Step {
        let mut fields = [EMPTY_HEADER; MOST_FIELDS];
        let mut response = Response::new(&mut fields);
        match response.parse(bytes).map_err(|error| bad(&format!("its head: {error}")))? {
            Status::Complete(len) => {
                self.status = response.code.unwrap_or(0);
                Ok(Some((len, after_head(&response, self.status)?)))
            }
            Status::Partial => may_grow(bytes, MOST_HEAD),
        }
    }
}

/// What follows a head (RFC 9112, section 6.3).
fn after_head(response: &Response<'_, '_>, status: u16) -> io::Result<Part> {
    let fields = &*response.headers;
    match status {
        // An interim answer.
        100..200 => return Ok(Part::Head),
        _ if response.version != Some(1) || has(fields, "connection", "close") => {
            return Err(bad(&format!("with status {status} it ends the connection")));
        }
        204 | 304 => return Ok(Part::End),
        _ if has(fields, "transfer-encoding", "chunked") => return Ok(Part::Size),
        _ => {}
    }
    let length = values(fields, "content-length").next();
    let length = length.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    match length.ok_or_else(|| bad(&format!("with status {status} it has no length")))? {
        0 => Ok(Part::End),
        left => Ok(Part::Body(left)),
    }
}

fn values<'a>(fields: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
    let named = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(name);
    fields.iter().filter(named).map(|field| field.value)
}

/// Whether a field's list contains `word`.
fn has(fields: &[Header<'_>], name: &str, word: &str) -> bool {
    let is = |item: &[u8]| item.trim_ascii().eq_ignore_ascii_case(word.as_bytes());
    values(fields, name).any(|value| value.split(|&byte| byte == b',').any(is))
}

/// Skips up to `left` bytes.
fn pass(bytes: &[u8], left: u64, more: fn(u64) -> Part, then: Part) -> Option<(usize, Part)> {
    let len = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
    let left = left - len as u64;
    (len > 0).then(|| (len, if left == 0 { then } else { more(left) }))
}

fn size(bytes: &[u8]) -> Step {
    let wrong = || bad("the size of a chunk");
    match parse_chunk_size(bytes).map_err(|_| wrong())? {
        Status::Complete((len, 0)) => Ok(Some((len, Part::Trailer))),
        Status::Complete((len, left)) => {
            Ok(Some((len, Part::Chunk(left.checked_add(2).ok_or_else(wrong)?))))
        }
        Status::Partial => may_grow(bytes, MOST_LINE),
    }
}

/// Lines until an empty one.
fn trailer(bytes: &[u8]) -> Step {
    match bytes.windows(2).position(|pair| pair == b"\r\n") {
        Some(0) => Ok(Some((2, Part::End))),
        Some(end) => Ok(Some((end + 2, Part::Trailer))),
        None => may_grow(bytes, MOST_LINE),
    }
}

fn may_grow(bytes: &[u8], most: usize) -> Step {
    if bytes.len() < most { Ok(None) } else { Err(bad(&format!("more than {most} bytes of it"))) }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot follow an HTTP answer: {why}"))
}

#[cfg(test)]
#[path = "http_answer_tests.rs"]
mod tests;
