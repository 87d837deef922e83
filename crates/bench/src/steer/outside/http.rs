//! Requests over HTTP, one connection each: a socket is chosen for every request.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::rc::Rc;

use heddle_core::Ns;
use heddle_sys::epoll::{Epoll, Events};
use socket2::{Domain, Socket, Type};

use heddle_load::EpollClock;
use heddle_load::{Answer, Arrival, Op, Transport};

/// Connections handled per round of the loop; the others follow in the next.
const AT_ONCE: usize = 256;

/// An open connection.
struct Exchange {
    stream: TcpStream,
    request: Option<&'static [u8]>,
    answer: Vec<u8>,
}

/// The load's transport to an HTTP server.
pub struct Http {
    server: SocketAddr,
    epoll: Rc<Epoll>,
    events: Events,
    open: BTreeMap<u64, Exchange>,
    ready: Vec<u64>,
}

impl Http {
    pub fn new(server: SocketAddr) -> io::Result<Http> {
        let (epoll, events) = (Rc::new(Epoll::new()?), Events::with_capacity(AT_ONCE));
        Ok(Http { server, epoll, events, open: BTreeMap::new(), ready: Vec::new() })
    }

    pub fn clock(&self) -> EpollClock {
        EpollClock::new(Rc::clone(&self.epoll))
    }

    /// The answer on connection `id`, if it is complete.
    fn look(&mut self, id: u64) -> Option<Answer> {
        let exchange = self.open.get_mut(&id)?;
        let ok = match exchange.advance() {
            Ok(false) => return None,
            Ok(true) => exchange.answer.starts_with(b"HTTP/1.1 200"),
            Err(_) => false,
        };
        self.open.remove(&id);
        Some(Answer { id, ok, service: None, at: None })
    }
}

impl Exchange {
    /// Sends and receives without waiting; returns whether the server has closed.
    fn advance(&mut self) -> io::Result<bool> {
        let waits = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
        };
        if let Some(request) = self.request {
            match self.stream.write(request) {
                Err(error) if waits(&error) => return Ok(false),
                // It is shorter than any send buffer.
                sent => self.request = (sent? < request.len()).then_some(request),
            }
        }
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(length) => self.answer.extend_from_slice(&buffer[..length]),
                Err(error) if waits(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Transport for Http {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(self.server), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&self.server.into()) {
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            done => done?,
        }
        let request: &'static [u8] = match request.op {
            Op::Scan => b"GET /long HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n",
            _ => b"GET /short HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n",
        };
        self.epoll.add(socket.as_fd(), id)?;
        let exchange =
            Exchange { stream: socket.into(), request: Some(request), answer: Vec::new() };
        self.open.insert(id, exchange);
        self.ready.push(id);
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        if self.ready.is_empty() {
            self.epoll.wait(&mut self.events, Some(Ns::ZERO));
            self.ready.extend(self.events.iter().map(|(id, _)| id));
        }
        while let Some(id) = self.ready.pop() {
            if let Some(answer) = self.look(id) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use heddle_load::Clock as _;

    /// Serves as many connections as there are answers, and closes each.
    fn serve(answers: &'static [&'static [u8]]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                stream.write_all(answer).unwrap();
            }
        });
        address
    }

    #[test]
    fn an_answer_is_complete_when_the_server_closes_and_errors_are_failures() {
        let mut http =
            Http::new(serve(&[b"HTTP/1.1 200 OK\r\n\r\nok", b"HTTP/1.1 503 Busy\r\n\r\n"]))
                .unwrap();
        let mut clock = http.clock();
        let mut answers = Vec::new();
        for id in 0..2 {
            http.send(id, &Arrival { at: Ns::ZERO, op: Op::Get, key: 0 }).unwrap();
            let answer = loop {
                if let Some(answer) = http.receive().unwrap() {
                    break answer;
                }
                let until = clock.now() + Ns::from_ms(100);
                clock.pause(until);
            };
            answers.push((answer.id, answer.ok));
        }
        assert_eq!(answers, [(0, true), (1, false)]);
    }
}
