//! Files over HTTP/1.1: GET and HEAD, connections that stay, pipelines. Nothing is cached.

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

/// The longest body that is read and thrown away so that the connection can stay.
const MAX_SKIPPED: u64 = 1 << 20;
/// More than the head of an answer takes.
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

/// One connection's part.
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

    const TOO_MANY: &'static [u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

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
                // Of a file that was cut short meanwhile the client has less than it was promised: the end tells it.
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
            // Without a request there is nothing to answer; and what is left of a body has its answer.
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
        // Who has begun to send a file does not want for memory in the middle.
        let next = self.body.as_ref().map_or(0, piece);
        self.hold.settle(self.unread.capacity() + next, &mut self.replies);
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }
}

/// What is read of a file at once.
fn piece(body: &Body) -> usize {
    FLUSH_AT.min(usize::try_from(body.left).unwrap_or(FLUSH_AT))
}

impl HttpConversation {
    /// There is no room to go on. What has begun ends here; the client sees it by the length.
    fn cut(&mut self, limit: Limit) {
        if self.body.take().is_none() && !self.last {
            Conversation::refuse(self, limit);
        }
    }

    /// Takes one request. False if more of it has to come.
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

    /// What waits for its next request keeps no memory for it.
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
                // An empty one is sent already.
                self.body = (!head.head_only && body.left > 0).then_some(body);
            }
            Err(status) => self.refuse(status, head.version, head.head_only),
        }
    }

    /// The file, if there is room to send it; the room is taken, so that it is not wanting once the answer has begun.
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
            // Who speaks 1.0 expects the end otherwise.
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
