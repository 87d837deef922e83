//! The key-value protocols on a connection: from bytes to performed requests.

use super::limits::Reservation;
use super::options::Protocol;
use super::service::Service;
use heddle_proto::{memcached, resp};
use heddle_store::Section;

/// The reader of one connection.
pub(super) enum Wire {
    /// Redis' protocol.
    Resp(resp::Reader),
    /// memcached's text protocol.
    Memcached(memcached::Reader),
}

/// The result of an attempt to perform the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is performed, and its reply appended.
    Done,
    /// More bytes are needed.
    Read,
    /// The connection ends with the replies so far.
    Close,
}

impl Wire {
    /// The reader of a new connection.
    pub(super) fn new<S>(service: &Service<S>) -> Wire {
        match service.protocol {
            Protocol::Memcached => Wire::Memcached(memcached::Reader::new()),
            _ => Wire::Resp(resp::Reader::new(service.limits)),
        }
    }

    /// Takes bytes that were read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Wire::Resp(reader) => reader.push(bytes),
            Wire::Memcached(reader) => reader.push(bytes),
        }
    }

    /// Whether a request is incomplete.
    pub(super) fn is_mid_request(&self) -> bool {
        match self {
            Wire::Resp(reader) => reader.is_mid_request(),
            Wire::Memcached(reader) => reader.is_mid_request(),
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        match self {
            Wire::Resp(reader) => reader.held(),
            Wire::Memcached(reader) => reader.held(),
        }
    }

    /// Frees the memory of completed requests.
    pub(super) fn settle(&mut self) {
        match self {
            Wire::Resp(reader) => reader.settle(),
            Wire::Memcached(reader) => reader.settle(),
        }
    }

    /// Appends an error of the server.
    pub(super) fn error(&self, out: &mut Vec<u8>, text: &str) {
        match self {
            Wire::Resp(_) => resp::error(out, &format!("ERR {text}")),
            Wire::Memcached(_) => memcached::line(out, &format!("SERVER_ERROR {text}")),
        }
    }

    /// The client sends no more in the middle of a request. memcached has no word for it.
    pub(super) fn ended(&self, out: &mut Vec<u8>) {
        if let Wire::Resp(_) = self {
            self.error(out, "Protocol error: the connection ended in mid-request");
        }
    }

    /// Performs the next request, if it is complete.
    pub(super) fn perform<S: Section>(
        &mut self,
        service: &Service<S>,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Turn {
        match self {
            Wire::Resp(reader) => perform_resp(reader, service, hold, out),
            Wire::Memcached(reader) => match reader.next_request() {
                Ok(None) => Turn::Read,
                Ok(Some(request)) => done(service.memcached(request, hold, out)),
                Err(fatal) => {
                    service.counters.protocol_errors.add();
                    memcached::line(out, &fatal.to_string());
                    Turn::Close
                }
            },
        }
    }
}

fn perform_resp<S: Section>(
    reader: &mut resp::Reader,
    service: &Service<S>,
    hold: &mut Reservation,
    out: &mut Vec<u8>,
) -> Turn {
    match reader.next_request() {
        Ok(None) => Turn::Read,
        Ok(Some(resp::Request::TooLong { len, limit })) => {
            service.counters.request_errors.add();
            let text = format!(
                "ERR the argument of {len} bytes is too long: at most {limit} bytes each, {} together",
                service.limits.request
            );
            resp::error(out, &text);
            Turn::Done
        }
        Ok(Some(resp::Request::Command(args))) => done(service.command(&args, hold, out)),
        Err(error) => {
            service.counters.protocol_errors.add();
            resp::error(out, &format!("ERR Protocol error: {error}"));
            Turn::Close
        }
    }
}

fn done(flow: std::ops::ControlFlow<()>) -> Turn {
    if flow.is_break() { Turn::Close } else { Turn::Done }
}
