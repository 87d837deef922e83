//! Requests over persistent TCP connections, in any dialect.
//!
//! Requests go to the connections in turn. The [`Dialect`] limits how many are in flight on one: RESP is
//! pipelined without a limit, an HTTP connection serves one request at a time. A request that finds no
//! connection with room is not sent: it stays due, its latency grows, and the engine counts it as crowded.
//!
//! Answers come in order on each connection, so their ids are not sent. One epoll instance reports which
//! connections have answers: a check costs one system call, however many connections there are.

use super::arrivals::Arrival;
use super::request::Shape;
use super::transport::{Answer, Transport};
use heddle_core::Ns;
use heddle_sys::epoll::{Epoll, Events};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::Duration;

/// Most bytes buffered for sending on one connection; beyond this it has no room.
const MOST_UNSENT: usize = 1 << 20;
/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// Connections reported per check; the next check reports the others.
const AT_ONCE: usize = 256;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The protocol of a connection; one value parses the answers of one connection.
pub trait Dialect: Default {
    /// The most requests in flight on one connection.
    const DEPTH: usize;

    /// Appends a request.
    fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape);

    /// Parses further answers. If `bytes` contain the end of the current answer, returns its position and
    /// whether the request succeeded; otherwise returns how many bytes were consumed.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the next answer cannot be found.
    fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<bool>)>;
}

/// A set of connections.
#[derive(Debug)]
pub struct Streams<D> {
    connections: Vec<Connection<D>>,
    /// The next connection in turn.
    next: usize,
    shape: Shape,
    inbox: Inbox,
}

/// The connections that may be readable, and the read buffer.
struct Inbox {
    epoll: Rc<Epoll>,
    events: Events,
    ready: VecDeque<usize>,
    chunk: Box<[u8]>,
}

#[derive(Debug)]
struct Connection<D> {
    stream: TcpStream,
    dialect: D,
    unsent: Vec<u8>,
    received: Vec<u8>,
    consumed: usize,
    waiting: VecDeque<u64>,
}

impl<D: Dialect> Streams<D> {
    /// Opens `connections` connections to `server`.
    ///
    /// # Errors
    /// System errors.
    pub fn connect(server: SocketAddr, connections: usize, shape: Shape) -> io::Result<Streams<D>> {
        let open = |_| TcpStream::connect_timeout(&server, CONNECT_TIMEOUT);
        let streams = (0..connections.max(1)).map(open).collect::<io::Result<_>>()?;
        Streams::over(streams, shape)
    }

    /// Takes connections that are open, at least one.
    ///
    /// # Errors
    /// System errors.
    pub fn over(streams: Vec<TcpStream>, shape: Shape) -> io::Result<Streams<D>> {
        let inbox = Inbox::new()?;
        let take = |(key, stream)| {
            let connection = Connection::new(stream)?;
            inbox.epoll.add(connection.stream.as_fd(), key)?;
            Ok(connection)
        };
        let connections = (0..).zip(streams).map(take).collect::<io::Result<_>>()?;
        Ok(Streams { connections, next: 0, shape, inbox })
    }

    /// Returns the descriptor that becomes ready with an answer, for [`EpollClock`](crate::EpollClock).
    pub fn epoll(&self) -> Rc<Epoll> {
        Rc::clone(&self.inbox.epoll)
    }

    /// The first connection with room, starting at the next in turn.
    fn with_room(&self) -> Option<usize> {
        let count = self.connections.len();
        let mut turns = (self.next..count).chain(0..self.next);
        turns.find(|&index| self.connections[index].has_room())
    }
}

impl<D: Dialect> Transport for Streams<D> {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let index = self.with_room().ok_or(io::ErrorKind::WouldBlock)?;
        self.next = (index + 1) % self.connections.len();
        let connection = &mut self.connections[index];
        D::encode(&mut connection.unsent, request, &self.shape);
        connection.waiting.push_back(id);
        connection.flush()
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        let inbox = &mut self.inbox;
        if inbox.ready.is_empty() {
            inbox.look();
        }
        while let Some(&index) = inbox.ready.front() {
            if let Some(answer) = self.connections[index].receive(&mut inbox.chunk)? {
                return Ok(Some(answer));
            }
            inbox.ready.pop_front();
        }
        Ok(None)
    }
}

impl Inbox {
    fn new() -> io::Result<Inbox> {
        let (epoll, events) = (Rc::new(Epoll::new()?), Events::with_capacity(AT_ONCE));
        Ok(Inbox { epoll, events, ready: VecDeque::new(), chunk: vec![0; CHUNK].into() })
    }

    fn look(&mut self) {
        self.epoll.wait(&mut self.events, Some(Ns::ZERO));
        self.ready.extend(self.events.iter().filter_map(|(key, _)| usize::try_from(key).ok()));
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl<D: Dialect> Connection<D> {
    fn new(stream: TcpStream) -> io::Result<Connection<D>> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (unsent, received, waiting) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Connection { stream, dialect: D::default(), unsent, received, consumed: 0, waiting })
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < D::DEPTH && self.unsent.len() <= MOST_UNSENT
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Ok(0) => return Err(closed()),
                written => drop(self.unsent.drain(..written?)),
            }
        }
        Ok(())
    }

    /// The next answer, from the buffer or from the socket. Readiness is edge-triggered: only `None` means
    /// that the socket was read to its end.
    fn receive(&mut self, chunk: &mut [u8]) -> io::Result<Option<Answer>> {
        self.flush()?;
        loop {
            if let Some(answer) = self.next_answer()? {
                return Ok(Some(answer));
            }
            match self.stream.read(chunk) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Ok(0) => return Err(closed()),
                read => self.received.extend_from_slice(&chunk[..read?]),
            }
        }
    }

    fn next_answer(&mut self) -> io::Result<Option<Answer>> {
        let rest = &self.received[self.consumed..];
        let (done, ended) = if rest.is_empty() { (0, None) } else { self.dialect.advance(rest)? };
        self.consumed += done;
        let Some(ok) = ended else {
            self.received.drain(..self.consumed);
            self.consumed = 0;
            return Ok(None);
        };
        let id = self.waiting.pop_front();
        let id =
            id.ok_or_else(|| io::Error::other("the server sent an answer without a request"))?;
        Ok(Some(Answer { id, ok, service: None, at: None }))
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server closed a connection")
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
