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

/// Connected sockets, one per flow; the request's key selects it.
pub struct Flows {
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
        let epoll = Rc::new(Epoll::new()?);
        let mut sockets = Vec::new();
        for (key, &server) in ports.iter().flat_map(|port| [port; FLOWS]).enumerate() {
            let any: SocketAddr = match server {
                SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            epoll.add(socket.as_fd(), key as u64)?;
            sockets.push(socket);
        }
        Ok(Flows {
            sockets,
            epoll,
            events: Events::with_capacity(FLOWS * ports.len()),
            ready: Vec::new(),
            sent: 0,
        })
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

impl Transport for Flows {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let first = if request.op == Op::Scan { self.sockets.len() - FLOWS } else { 0 };
        let flow = first + usize::try_from(request.key).unwrap_or(0) % FLOWS;
        let datagram = wire::request(request.op, id);
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
        let mut buffer = [0; wire::LEN + 1];
        while let Some(&flow) = self.ready.last() {
            match self.sockets[flow].recv(&mut buffer) {
                Ok(length) => match wire::answered(&buffer[..length]) {
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
