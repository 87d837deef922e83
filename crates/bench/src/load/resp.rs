//! Requests over TCP connections in RESP, as any client of the server sends them.
//!
//! Requests go to the connections in turn and are pipelined: an open loop does not wait for the answer
//! before. Answers come in order on each connection, so that their ids need not travel.

use super::arrivals::Arrival;
use super::engine::{Answer, Transport};
use super::mix::Op;
use super::request::Shape;
use super::resp_reply;
use crate::proto::udp::id_key;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bytes that wait for the kernel on one connection; beyond, a request is not sent and grows late.
const MOST_UNSENT: usize = 1 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Some connections.
#[derive(Debug)]
pub struct Resp {
    connections: Vec<Connection>,
    /// The connection that sends next, and the one that is read next.
    next: usize,
    reading: usize,
    shape: Shape,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
    consumed: usize,
    waiting: VecDeque<u64>,
}

impl Resp {
    /// `connections` connections to `server`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn connect(server: SocketAddr, connections: usize, shape: Shape) -> io::Result<Resp> {
        let open = |_| Connection::open(server);
        let connections = (0..connections.max(1)).map(open).collect::<io::Result<_>>()?;
        Ok(Resp { connections, next: 0, reading: 0, shape })
    }
}

impl Transport for Resp {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let count = self.connections.len();
        let connection = &mut self.connections[self.next];
        if connection.unsent.len() > MOST_UNSENT {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        encode(&mut connection.unsent, request, &self.shape);
        connection.waiting.push_back(id);
        self.next = (self.next + 1) % count;
        connection.flush()
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        for _ in 0..self.connections.len() {
            let connection = &mut self.connections[self.reading];
            if let Some(answer) = connection.receive()? {
                return Ok(Some(answer));
            }
            self.reading = (self.reading + 1) % self.connections.len();
        }
        Ok(None)
    }
}

impl Connection {
    fn open(server: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (unsent, received) = (Vec::new(), Vec::new());
        Ok(Connection { stream, unsent, received, consumed: 0, waiting: VecDeque::new() })
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

    /// The next answer, from what was read before or from the socket.
    fn receive(&mut self) -> io::Result<Option<Answer>> {
        self.flush()?;
        if let Some(answer) = self.next_reply()? {
            return Ok(Some(answer));
        }
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Ok(0) => return Err(closed()),
            read => self.received.extend_from_slice(&chunk[..read?]),
        }
        self.next_reply()
    }

    fn next_reply(&mut self) -> io::Result<Option<Answer>> {
        let Some(reply) = resp_reply::parse(&self.received[self.consumed..])? else {
            self.received.drain(..self.consumed);
            self.consumed = 0;
            return Ok(None);
        };
        self.consumed += reply.len;
        let id = self.waiting.pop_front();
        let id = id.ok_or_else(|| io::Error::other("the server answered what nobody asked"))?;
        Ok(Some(Answer { id, ok: reply.ok, service: None, at: None }))
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server closed a connection")
}

fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape) {
    let key = id_key(shape.key(request));
    let count = shape.count(request.op).to_string();
    match request.op {
        Op::Get => command(out, &[b"GET", &key]),
        Op::Scan => command(out, &[b"RANGE", &key, count.as_bytes()]),
        Op::Set => command(out, &[b"SET", &key, shape.value(request.op)]),
    }
}

/// A RESP array of bulk strings.
fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}
