//! The clients' ends of all connections, as one transport of the load generator.

use super::connection::{Connection, LEN, Word, Words};
use super::demux::Remainder;
use super::workload::{Demand, Wire};
use heddle_core::Ns;
use heddle_load::{Answer, Arrival, Transport};
use heddle_sys::epoll::{Epoll, Events, READ};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

/// Pairs of connected sockets: the clients' ends and the server's.
pub(super) fn connect(wire: Wire, count: usize) -> io::Result<(Vec<OwnedFd>, Vec<Connection>)> {
    let pairs = match wire {
        Wire::Unix => (0..count).map(|_| unix()).collect::<io::Result<Vec<_>>>()?,
        Wire::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            (0..count).map(|_| tcp(&listener)).collect::<io::Result<Vec<_>>>()?
        }
    };
    Ok(pairs.into_iter().map(|(near, far)| (near, Connection::new(far))).unzip())
}

fn unix() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    Ok((near.into(), far.into()))
}

/// A pair of connected sockets: the client's end and the server's.
pub(super) fn tcp(listener: &TcpListener) -> io::Result<(OwnedFd, OwnedFd)> {
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    Ok((near.into(), far.into()))
}

/// All clients' ends. Used by one thread.
pub(super) struct Client {
    ends: Vec<OwnedFd>,
    words: Vec<Words>,
    demand: Demand,
    epoll: Rc<Epoll>,
    events: Events,
    came: Vec<Word>,
    answers: VecDeque<Answer>,
    /// Start of the run, by the system's clock.
    origin: Ns,
}

impl Client {
    /// # Errors
    /// System errors.
    pub(super) fn new(ends: Vec<OwnedFd>, demand: Demand, origin: Ns) -> io::Result<Client> {
        let epoll = Epoll::new()?;
        for (number, end) in ends.iter().enumerate() {
            epoll.watch(end.as_raw_fd(), number as u64, READ, false)?;
        }
        Ok(Client {
            words: ends.iter().map(|_| Words::default()).collect(),
            events: Events::with_capacity(ends.len().max(1)),
            ends,
            demand,
            epoll: Rc::new(epoll),
            came: Vec::new(),
            answers: VecDeque::new(),
            origin,
        })
    }

    /// The descriptor that becomes ready with an answer.
    pub(super) fn epoll(&self) -> Rc<Epoll> {
        Rc::clone(&self.epoll)
    }

    fn gather(&mut self) {
        self.epoll.wait(&mut self.events, Some(Ns::ZERO));
        for (number, _) in self.events.iter() {
            let number = number as usize;
            // Edge-triggered: until there is no more.
            let (words, end) = (&mut self.words[number], self.ends[number].as_fd());
            while words.read(end, &mut self.came) == Remainder::Perhaps {}
        }
        let (origin, answers) = (self.origin, &mut self.answers);
        let answer = |word: Word| Answer {
            id: word.id,
            ok: true,
            service: None,
            at: Some(word.time - origin),
        };
        answers.extend(self.came.drain(..).map(answer));
    }
}

impl Transport for Client {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        let time = self.demand.of(request);
        match rustix::io::write(&self.ends[request.key as usize], &Word { id, time }.encode()) {
            Ok(LEN) => Ok(()),
            Ok(_) => Err(io::Error::other("a request was cut in two")),
            Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        if self.answers.is_empty() {
            self.gather();
        }
        Ok(self.answers.pop_front())
    }
}
