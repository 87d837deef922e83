//! Files over HTTP/1.1: GET and HEAD, keep-alive, pipelining. Nothing is cached.

mod files;
mod head;
mod status;

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::protocol::{Client, Clients, Conversation, Protocol};
use crate::limits::{Bounds, Limit, Reservation, Waits};
use crate::session::{FLUSH_AT, NextStep};
use files::{Body, Root};
use head::{Head, Parsed, parse};
use status::Status;

/// The longest request body that is read and discarded to keep the connection open.
const MAX_SKIPPED: u64 = 1 << 20;
/// Upper bound of an answer's head.
const HEAD: usize = 512;

/// The files of a directory.
pub(crate) struct Http {
    root: Arc<Root>,
    clients: Clients,
}

impl Http {
    /// # Errors
    /// The directory cannot be opened.
    pub(crate) fn new(
        root: &Path,
        max_connections: usize,
        bounds: &Arc<Bounds>,
    ) -> io::Result<Http> {
        let clients = Clients::new(max_connections, bounds);
        Ok(Http { root: Arc::new(Root::open(root)?), clients })
    }
}

/// State of one connection.
pub(crate) struct HttpConversation {
    root: Arc<Root>,
    unread: Vec<u8>,
    at: usize,
    replies: Vec<u8>,
    /// A file that is being sent.
    body: Option<Body>,
    /// Bytes of a request's body that are still to come.
    skip: u64,
    /// No request follows.
    last: bool,
    hold: Reservation,
    _client: Client,
}

impl Protocol for Http {
    type Conversation = HttpConversation;

    fn too_many(&self) -> &'static [u8] {
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    }

    fn bounds(&self) -> &Arc<Bounds> {
        &self.clients.bounds
    }

    fn open(&self) -> Option<HttpConversation> {
        let client = self.clients.enter()?;
        Some(HttpConversation {
            root: self.root.clone(),
            unread: Vec::new(),
            at: 0,
            replies: Vec::new(),
            body: None,
            skip: 0,
            last: false,
            hold: Reservation::new(&self.clients.bounds),
            _client: client,
        })
    }
}

impl Conversation for HttpConversation {
    fn push(&mut self, bytes: &[u8]) {
        self.unread.drain(..self.at);
        self.at = 0;
        self.unread.extend_from_slice(bytes);
    }

    fn advance(&mut self) -> NextStep {
        if let Err(limit) = self.hold.input(self.unread.capacity()) {
            self.cut(limit);
            return NextStep::Close;
        }
        while self.replies.len() < FLUSH_AT {
            if let Some(body) = &mut self.body {
                // The file was truncated meanwhile: the client gets less than announced, and sees it by the
                // end of the stream.
                self.last |= !body.fill(FLUSH_AT, &mut self.replies);
                if body.left == 0 || self.last {
                    self.body = None;
                }
            } else if self.last {
                return NextStep::Close;
            } else if !self.step() {
                self.forget();
                return NextStep::Read;
            }
            if let Err(limit) = self.hold.reply(self.replies.capacity()) {
                self.cut(limit);
                return NextStep::Close;
            }
        }
        NextStep::Advance
    }

    /// Half a request has no answer.
    fn end(&mut self) {}

    fn waits(&self) -> Waits {
        let is_mid = self.skip > 0 || self.at < self.unread.len();
        if is_mid { Waits::Request } else { Waits::Idle }
    }

    fn refuse(&mut self, limit: Limit) {
        let status = match limit {
            // Without a request there is nothing to answer; a request whose body is still arriving has its
            // answer already.
            Limit::Idle => return,
            Limit::Request if self.skip > 0 => return,
            Limit::Request => Status::TIMEOUT,
            Limit::ConnectionMemory => Status::TOO_LARGE,
            _ => Status::BUSY,
        };
        self.last = true;
        HttpConversation::refuse(self, status, 1, false);
    }

    fn settle(&mut self) {
        // A file that is being sent has its memory reserved.
        let next = self.body.as_ref().map_or(0, piece);
        self.hold.settle(self.unread.capacity() + next, &mut self.replies);
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }
}

/// Bytes of a file read at a time.
fn piece(body: &Body) -> usize {
    FLUSH_AT.min(usize::try_from(body.left).unwrap_or(FLUSH_AT))
}

impl HttpConversation {
    /// There is no room to go on: the connection ends, and the client sees it by the length.
    fn cut(&mut self, limit: Limit) {
        if self.body.take().is_none() && !self.last {
            Conversation::refuse(self, limit);
        }
    }

    /// Takes one request. Returns false if it is incomplete.
    fn step(&mut self) -> bool {
        let here = (self.unread.len() - self.at) as u64;
        let skipped = self.skip.min(here);
        self.at += skipped as usize;
        self.skip -= skipped;
        if self.skip > 0 || self.at == self.unread.len() {
            return false;
        }
        match parse(&self.unread[self.at..]) {
            Parsed::Partial => return false,
            Parsed::Bad(status) => {
                self.last = true;
                self.refuse(status, 1, false);
            }
            Parsed::Head(head, len) => {
                self.at += len;
                self.answer(&head);
            }
        }
        true
    }

    /// A connection that waits for its next request keeps no buffer.
    fn forget(&mut self) {
        if self.at == self.unread.len() {
            (self.unread, self.at) = (Vec::new(), 0);
        }
    }

    fn answer(&mut self, head: &Head) {
        self.skip = head.body;
        self.last = !head.keep || head.body > MAX_SKIPPED;
        let path = match &head.path {
            _ if head.body > MAX_SKIPPED => Err(Status::TOO_LARGE),
            Ok(path) => self.root.find(path).and_then(|found| self.fits(found)),
            Err(status) => Err(*status),
        };
        match path {
            Ok((body, kind)) => {
                self.begin(Status::OK, kind, body.left, head.version);
                // An empty file is sent already.
                self.body = (!head.head_only && body.left > 0).then_some(body);
            }
            Err(status) => self.refuse(status, head.version, head.head_only),
        }
    }

    /// Returns the file if there is room to send it; the room is reserved before the answer starts.
    fn fits<T>(&mut self, (body, kind): (Body, T)) -> Result<(Body, T), Status> {
        let more = HEAD + piece(&body);
        let room = self.hold.reply(self.replies.len() + more).and_then(|()| {
            self.replies.reserve(more);
            self.hold.reply(self.replies.capacity())
        });
        room.map(|()| (body, kind)).map_err(|_| {
            self.replies.shrink_to_fit();
            Status::BUSY
        })
    }

    fn refuse(&mut self, status: Status, version: u8, head_only: bool) {
        let text = format!("{} {}\n", status.0, status.reason());
        self.begin(status, "text/plain; charset=utf-8", text.len() as u64, version);
        if !head_only {
            self.replies.extend_from_slice(text.as_bytes());
        }
    }

    /// Writes the head of an answer.
    fn begin(&mut self, status: Status, kind: &str, length: u64, version: u8) {
        let allow = if status == Status::NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
        let connection = match (self.last, version) {
            (true, _) => "Connection: close\r\n",
            // An HTTP/1.0 client expects the connection to close otherwise.
            (false, 0) => "Connection: keep-alive\r\n",
            (false, _) => "",
        };
        // Writing to a vector cannot fail.
        let _ = write!(
            self.replies,
            "HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}{connection}\r\n",
            status.0,
            status.reason(),
            httpdate::fmt_http_date(SystemTime::now()),
        );
    }
}
