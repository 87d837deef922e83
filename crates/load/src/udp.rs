//! Requests as datagrams.

use super::arrivals::Arrival;
use super::mix::Op;
use super::request::Shape;
use super::transport::{Answer, Transport};
use heddle_proto::udp::{self, Key, RESPONSE_LEN, Request, Response, Status};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// Size of the receive buffer: room for some ten thousand answers while this process is off its CPU.
/// The kernel caps it; a datagram that does not fit counts as lost.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A connected, non-blocking socket.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    shape: Shape,
    datagram: Vec<u8>,
    /// Datagrams that were not answers.
    pub malformed: u64,
}

impl Udp {
    /// Connects a socket to `server`.
    ///
    /// # Errors
    /// System errors.
    pub fn connect(server: SocketAddr, shape: Shape) -> io::Result<Udp> {
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
        Ok(Udp { socket, shape, datagram: Vec::new(), malformed: 0 })
    }
}

impl Transport for Udp {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        self.datagram.clear();
        Request {
            op: match request.op {
                Op::Get => udp::Op::Get,
                Op::Scan => udp::Op::Scan,
                Op::Set => udp::Op::Put,
            },
            id,
            sent: request.at,
            key: Key::Id(self.shape.key(request)),
            count: self.shape.count(request.op),
            value: self.shape.value(request.op),
        }
        .encode(&mut self.datagram);
        match self.socket.send(&self.datagram) {
            // A pending error reports that an earlier datagram was refused: it is lost, and this one was not sent.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Err(gone(e)),
            sent => sent.map(drop),
        }
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        // One byte more than an answer has, so that a longer datagram is not mistaken for one.
        let mut buffer = [0; RESPONSE_LEN + 1];
        let len = match self.socket.recv(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(gone(e)),
            len => len?,
        };
        let Ok(response) = Response::decode(&buffer[..len]) else {
            self.malformed += 1;
            return Ok(None);
        };
        // A missing key is an answer too, but to different work than requested.
        let ok = response.status == Status::Ok;
        Ok(Some(Answer { id: response.id, ok, service: Some(response.service), at: None }))
    }
}

fn gone(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), "no server listens there (any more); start `heddle kv serve` first")
}
