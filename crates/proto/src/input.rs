//! The bytes of a connection that are not parsed yet.

use std::ops::Range;

/// Parsed bytes are dropped from the front of the buffer once there are this many.
pub(super) const COMPACT_AT: usize = 64 << 10;
/// Memory that an empty buffer keeps. Together with a short reply it is less than the allowance of a
/// connection when others hold all the rest.
pub(super) const KEPT: usize = 8 << 10;

/// A line has more bytes than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// A buffer that is filled at its end and consumed at its front.
#[derive(Debug, Default)]
pub(super) struct Input {
    buf: Vec<u8>,
    /// `buf` is parsed up to here.
    at: usize,
    /// No line end before here, so that a slow line is searched once.
    searched: usize,
}

impl Input {
    /// Takes bytes of the connection.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.at == self.buf.len() || self.at >= COMPACT_AT {
            self.buf.drain(..self.at);
            self.searched = self.searched.saturating_sub(self.at);
            self.at = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// What is not parsed yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buf[self.at..]
    }

    /// The bytes of a range that [`Input::line`] returned; valid until the next push.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buf[range]
    }

    /// Bytes of memory held.
    pub(super) fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// Marks `n` bytes as parsed.
    pub(super) fn consume(&mut self, n: usize) {
        self.at += n;
        self.searched = self.at;
    }

    /// Frees the buffer if everything in it is parsed and it is long.
    pub(super) fn settle(&mut self) {
        if self.at == self.buf.len() && self.buf.capacity() > KEPT {
            *self = Input::default();
        }
    }

    /// The range of the next line, without its end, which is consumed; `None` while it is incomplete. Lines
    /// end in LF or CR LF.
    ///
    /// # Errors
    /// [`LineTooLong`] if the line, with a CR at its end, has more than `most` bytes.
    pub(super) fn line(&mut self, most: usize) -> Result<Option<Range<usize>>, LineTooLong> {
        let from = self.searched.max(self.at);
        let Some(found) = self.buf[from..].iter().position(|b| *b == b'\n') else {
            self.searched = self.buf.len();
            return if self.rest().len() > most { Err(LineTooLong) } else { Ok(None) };
        };
        let (start, end) = (self.at, from + found);
        if end - start > most {
            return Err(LineTooLong);
        }
        self.consume(end + 1 - start);
        let has_cr = end > start && self.buf[end - 1] == b'\r';
        Ok(Some(start..end - usize::from(has_cr)))
    }
}
