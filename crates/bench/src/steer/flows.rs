//! The load's transport: flows, as from many clients, watched by one loop.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::rc::Rc;

use heddle_core::Ns;
use heddle_sys::epoll::{Epoll, Events, READ};

use super::wire;
use heddle_load::EpollClock;
use heddle_load::{Answer, Arrival, Op, Transport};

/// As many as in Syrup's evaluation (section 5.2.1).
pub const FLOWS: usize = 50;
/// More than any datagram of a format has, so that longer ones are noticed.
const MOST_BYTES: usize = 64;

/// The datagrams of a protocol whose requests have `LEN` bytes.
#[derive(Clone, Copy)]
pub struct Format<const LEN: usize> {
    /// The request with an id.
    pub request: fn(u64, &Arrival) -> [u8; LEN],
    /// The answer of a datagram; `None` if it is none.
    pub answered: fn(&[u8]) -> Option<Answer>,
}

/// Connected sockets, one per flow; the request's key selects it.
pub struct Flows<const LEN: usize = { wire::LEN }> {
    format: Format<LEN>,
    /// Those to the server's port; behind them those to its port for SCANs, if it has one.
    sockets: Vec<UdpSocket>,
    epoll: Rc<Epoll>,
    events: Events,
    ready: Vec<usize>,
    /// Datagrams sent.
    pub sent: u64,
}

impl Flows {
    /// Opens `FLOWS` flows to `server`.
    ///
    /// # Errors
    /// System errors.
    pub fn connect(server: SocketAddr) -> io::Result<Flows> {
        Flows::to(&[server])
    }

    /// Opens `FLOWS` flows to each of `ports`: SCANs go to the last, the rest to the first.
    ///
    /// # Errors
    /// System errors.
    pub fn to(ports: &[SocketAddr]) -> io::Result<Flows> {
        let sockets: io::Result<Vec<_>> =
            ports.iter().flat_map(|&port| [port; FLOWS]).map(flow).collect();
        let request = |id, request: &Arrival| wire::request(request.op, id);
        Flows::over(sockets?, Format { request, answered: wire::answered })
    }
}

/// Opens a flow to `server`, in the calling thread's network namespace.
///
/// # Errors
/// System errors.
pub fn flow(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl<const LEN: usize> Flows<LEN> {
    /// Uses these flows, as many as [`Flows::to`] opens, for another protocol.
    ///
    /// # Errors
    /// System errors.
    pub fn over(sockets: Vec<UdpSocket>, format: Format<LEN>) -> io::Result<Self> {
        let epoll = Rc::new(Epoll::new()?);
        for (key, socket) in (0..).zip(&sockets) {
            epoll.add(socket.as_fd(), key)?;
        }
        let events = Events::with_capacity(sockets.len());
        Ok(Flows { format, sockets, epoll, events, ready: Vec::new(), sent: 0 })
    }

    /// A clock that pauses until an answer arrives.
    #[must_use]
    pub fn clock(&self) -> EpollClock {
        EpollClock::new(Rc::clone(&self.epoll))
    }

    fn look(&mut self) {
        self.epoll.wait(&mut self.events, Some(Ns::ZERO));
        let readable = self.events.iter().filter(|(_, what)| what & READ != 0);
        self.ready.extend(readable.filter_map(|(key, _)| usize::try_from(key).ok()));
    }
}

impl<const LEN: usize> Transport for Flows<LEN> {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let first = if request.op == Op::Scan { self.sockets.len() - FLOWS } else { 0 };
        let flow = first + usize::try_from(request.key).unwrap_or(0) % FLOWS;
        let datagram = (self.format.request)(id, request);
        // The kernel answers a policy's drop with "port unreachable". The next call on the flow reports that
        // instead of sending, so it is retried.
        match self.sockets[flow].send(&datagram) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.sockets[flow].send(&datagram)?
            }
            sent => sent?,
        };
        self.sent += 1;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        if self.ready.is_empty() {
            self.look();
        }
        const { assert!(LEN < MOST_BYTES) };
        let mut buffer = [0; MOST_BYTES];
        while let Some(&flow) = self.ready.last() {
            match self.sockets[flow].recv(&mut buffer) {
                Ok(length) => match (self.format.answered)(&buffer[..length]) {
                    Some(answer) => return Ok(Some(answer)),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready.pop(),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
        }
        Ok(None)
    }
}
