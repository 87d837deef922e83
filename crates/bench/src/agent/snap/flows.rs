//! The clients: a flow of messages to each worker.

use super::super::child::echo::{LONGEST, READ_AT};
use heddle_core::Ns;
use heddle_load::{Answer, Arrival, EpollClock, Op, Transport};
use heddle_metrics::Histogram;
use heddle_sys::clock;
use heddle_sys::epoll::{Epoll, Events, READ};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::rc::Rc;

/// Bytes of short messages.
pub(super) const SHORT: usize = 64;
/// Bytes of long ones: 64 kB, headers included, in one datagram.
pub(super) const LONG: usize = 64_000;
const _: () = assert!(LONG <= LONGEST);
/// The load generator's operations in this part: a GET stands for a short message, a SET for a long one.
pub(super) const KINDS: [(Op, &str, usize); 2] =
    [(Op::Get, "64 B", SHORT), (Op::Set, "64 kB", LONG)];
/// Most datagrams that wait in a socket.
const BUFFER: usize = 8 << 20;

/// A connected socket for each worker. The first flow has short messages, the others long ones.
pub(super) struct Flows {
    sockets: Vec<UdpSocket>,
    epoll: Rc<Epoll>,
    events: Events,
    ready: Vec<usize>,
    message: Vec<u8>,
    /// Requests due before do not count.
    warmup: Ns,
    /// From the sending of a short and of a long message until its worker read it.
    wakeups: [Histogram; KINDS.len()],
}

impl Flows {
    /// Flows to `ports` of this machine.
    ///
    /// # Errors
    /// System errors.
    pub(super) fn connect(ports: &[u16], warmup: Ns) -> io::Result<Flows> {
        let epoll = Rc::new(Epoll::new()?);
        let mut sockets = Vec::new();
        for (key, &port) in ports.iter().enumerate() {
            let socket = UdpSocket::bind(("127.0.0.1", 0))?;
            socket.connect(("127.0.0.1", port))?;
            socket.set_nonblocking(true)?;
            // Capped by the kernel; a datagram that does not fit is lost, which invalidates the run.
            socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER)?;
            epoll.add(socket.as_fd(), key as u64)?;
            sockets.push(socket);
        }
        let events = Events::with_capacity(ports.len());
        let wakeups = [Histogram::new(), Histogram::new()];
        let message = vec![0x5a; LONGEST];
        Ok(Flows { sockets, epoll, events, ready: Vec::new(), message, warmup, wakeups })
    }

    /// A clock that pauses until an answer arrives.
    pub(super) fn clock(&self) -> EpollClock {
        EpollClock::new(Rc::clone(&self.epoll))
    }

    /// How long short and long messages waited for their workers.
    pub(super) fn wakeups(&self) -> &[Histogram; KINDS.len()] {
        &self.wakeups
    }

    fn flow(&self, request: &Arrival) -> usize {
        let long = self.sockets.len() - 1;
        match request.op {
            Op::Set if long > 0 => 1 + usize::try_from(request.key).unwrap_or(0) % long,
            _ => 0,
        }
    }

    fn record(&mut self, length: usize, sent: u64, read: u64) {
        let kind = KINDS.iter().position(|&(_, _, bytes)| bytes == length);
        if let (Some(kind), 1..) = (kind, sent) {
            self.wakeups[kind].record(Ns(read.saturating_sub(sent)));
        }
    }
}

/// Bytes of the message: the request's number, then where [`READ_AT`] the worker's time is, then the time of sending.
const ID: std::ops::Range<usize> = 0..8;
const SENT_AT: std::ops::Range<usize> = 16..24;

impl Transport for Flows {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let flow = self.flow(request);
        let length = if request.op == Op::Set { LONG } else { SHORT };
        // Zero is not counted.
        let now = if request.at >= self.warmup { clock::now().0 } else { 0 };
        self.message[ID].copy_from_slice(&id.to_ne_bytes());
        self.message[SENT_AT].copy_from_slice(&now.to_ne_bytes());
        self.sockets[flow].send(&self.message[..length]).map(drop)
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        if self.ready.is_empty() {
            self.epoll.wait(&mut self.events, Some(Ns::ZERO));
            let readable = self.events.iter().filter(|(_, what)| what & READ != 0);
            self.ready.extend(readable.filter_map(|(key, _)| usize::try_from(key).ok()));
        }
        while let Some(&flow) = self.ready.last() {
            let mut message = std::mem::take(&mut self.message);
            let received = self.sockets[flow].recv(&mut message);
            let number = |at: std::ops::Range<usize>| {
                u64::from_ne_bytes(message[at].try_into().unwrap_or_default())
            };
            let (id, sent, read) = (number(ID), number(SENT_AT), number(READ_AT));
            self.message = message;
            match received {
                Ok(length) => {
                    self.record(length, sent, read);
                    return Ok(Some(Answer { id, ok: true, service: None, at: None }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ready.pop(),
                Err(error) => return Err(error),
            };
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_flows_and_its_wakeups() {
        let servers: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = servers.iter().map(|it| it.local_addr().unwrap().port()).collect();
        let mut flows = Flows::connect(&ports, Ns(100)).unwrap();
        let request = |at, op, key| Arrival { at: Ns(at), op, key };
        flows.send(1, &request(50, Op::Get, 2)).unwrap();
        flows.send(2, &request(150, Op::Get, 1)).unwrap();
        flows.send(3, &request(150, Op::Set, 0)).unwrap();
        flows.send(4, &request(150, Op::Set, 1)).unwrap();
        let mut buffer = vec![0; LONGEST];
        for (server, lengths) in servers.iter().zip([&[SHORT, SHORT][..], &[LONG], &[LONG]]) {
            for &length in lengths {
                let (got, client) = server.recv_from(&mut buffer).unwrap();
                assert_eq!(got, length);
                buffer[READ_AT].copy_from_slice(&clock::now().0.to_ne_bytes());
                server.send_to(&buffer[..got], client).unwrap();
            }
        }
        let mut ids = Vec::new();
        while ids.len() < 4 {
            ids.extend(flows.receive().unwrap().map(|answer| answer.id));
        }
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4]);
        // The first was a warm-up.
        assert_eq!(flows.wakeups().each_ref().map(Histogram::count), [1, 2]);
    }
}
