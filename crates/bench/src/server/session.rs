//! One connection's conversation, apart from its socket.

use std::sync::Arc;

use super::service::Service;
use crate::proto::resp::{self, Reader, Request};
use crate::store::Section;

/// Replies are written out once there are so many bytes of them.
pub(super) const FLUSH_AT: usize = 64 << 10;
/// Bytes that one read takes from a connection.
pub(super) const READ_SIZE: usize = 16 << 10;

/// What to do after the replies so far are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Call [`Session::advance`] again: more requests are here already.
    Advance,
    /// Read from the connection.
    Read,
    /// Close the connection.
    Close,
}

/// Bytes in, replies out.
pub(super) struct Session<S> {
    service: Arc<Service<S>>,
    reader: Reader,
    replies: Vec<u8>,
}

impl<S: Section> Session<S> {
    pub(super) fn new(service: Arc<Service<S>>) -> Session<S> {
        let reader = Reader::new(service.limits);
        Session { service, reader, replies: Vec::new() }
    }

    /// Takes what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    /// The client sends no more: half a request is answered with an error.
    pub(super) fn end(&mut self) {
        if self.reader.is_mid_request() {
            self.service.counters.protocol_errors.add();
            resp::error(
                &mut self.replies,
                "ERR Protocol error: the connection ended in mid-request",
            );
        }
    }

    /// What is to be written; the caller clears it once it is.
    pub(super) fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }

    /// Performs the requests that are complete.
    pub(super) fn advance(&mut self) -> Then {
        while self.replies.len() < FLUSH_AT {
            match self.reader.next_request() {
                Ok(None) => return Then::Read,
                Ok(Some(Request::TooLong { len, limit })) => self.refuse(len, limit),
                Ok(Some(Request::Command(args))) => {
                    if self.service.command(&args, &mut self.replies).is_break() {
                        return Then::Close;
                    }
                }
                Err(error) => {
                    self.service.counters.protocol_errors.add();
                    resp::error(&mut self.replies, &format!("ERR Protocol error: {error}"));
                    return Then::Close;
                }
            }
        }
        Then::Advance
    }

    fn refuse(&mut self, len: usize, limit: usize) {
        self.service.counters.request_errors.add();
        let text = format!(
            "ERR the argument of {len} bytes is too long: at most {limit} bytes each, {} together",
            self.service.limits.request
        );
        resp::error(&mut self.replies, &text);
    }
}
