//! The handlers on anything that blocks: kernel threads and Heddle's threads, whose sockets and spawn have
//! the same shape. A [`Platform`] abstracts over them.
//!
//! Stopping: a connection of our own wakes the accept loop, and a datagram the receive loops, each of which
//! passes it on to the next. Each open connection is half-closed, so that its handler answers what has
//! arrived, reads the end of file, and ends. After [`super::DRAIN`] connections are cut; a client that has
//! not read its replies by then loses them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection_guard::Connection;
use super::limits::{Limit, Spare, Waits, Watch};
use super::open::{Breaker, Open, Presence};
use super::service::{Service, Ticket};
use super::session::{FLUSH_AT, LINGER, NextStep, READ_SIZE, Session};
use super::{ACCEPT_PAUSE, DRAIN, Error, Stop};
use heddle_proto::udp::MAX_DATAGRAM;
use heddle_store::Section;

/// Work to spawn.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// Sockets and threads of one kind.
pub(super) trait Platform: Clone + Send + Sync + 'static {
    type Section: Section;
    type Listener: Send + 'static;
    type Stream: Read + Write + Send + 'static;
    type Udp: Send + Sync + 'static;

    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;
    fn breaker(stream: &Self::Stream) -> io::Result<Breaker>;
    /// Makes closing the connection reset it.
    fn reset_on_close(stream: &Self::Stream) -> io::Result<()>;
    fn receive(socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    fn send(socket: &Self::Udp, bytes: &[u8], to: SocketAddr) -> io::Result<()>;
    /// Spawns a loop or a connection handler, which is long-lived and mostly waits.
    fn spawn(&self, work: Work) -> io::Result<()>;
    /// How many loops receive datagrams.
    fn receivers(&self) -> usize {
        1
    }
    /// Has a datagram answered, directly or on another thread. The answer never waits for a client.
    fn hand_on(&self, datagram: &[u8], answer: impl FnOnce(&[u8]) + Send + 'static);
    /// Lets others run for `time`.
    fn pause(time: Duration);
}

/// State shared by the loops and handlers of one server.
pub(super) struct Blocking<P: Platform> {
    platform: P,
    service: Arc<Service<P::Section>>,
    stop: Stop,
    open: Arc<Open>,
}

impl<P: Platform> Clone for Blocking<P> {
    fn clone(&self) -> Self {
        let Blocking { platform, service, stop, open } = self;
        Blocking {
            platform: platform.clone(),
            service: service.clone(),
            stop: stop.clone(),
            open: open.clone(),
        }
    }
}

impl<P: Platform> Blocking<P> {
    pub(super) fn new(platform: P, service: Arc<Service<P::Section>>, stop: &Stop) -> Self {
        Blocking { platform, service, stop: stop.clone(), open: Arc::default() }
    }

    /// Starts the loops; called where the platform can spawn.
    pub(super) fn start(
        &self,
        tcp: Option<(P::Listener, SocketAddr)>,
        udp: Option<(P::Udp, SocketAddr)>,
    ) -> io::Result<()> {
        if let Some((listener, addr)) = tcp {
            self.spawn_loop(move |own| accept_loop(own, &listener))?;
            self.stop.on_request(move || drop(TcpStream::connect_timeout(&addr, DRAIN)));
        }
        if let Some((socket, addr)) = udp {
            let socket = Arc::new(socket);
            for _ in 0..self.platform.receivers() {
                let socket = socket.clone();
                self.spawn_loop(move |own| receive_loop(own, &socket, addr))?;
            }
            self.stop.on_request(move || drop(knock(addr)));
        }
        Ok(())
    }

    fn spawn_loop(&self, body: impl FnOnce(&Self) + Send + 'static) -> io::Result<()> {
        let (own, presence) = (self.clone(), self.enter(Box::new(|_| ())));
        self.platform.spawn(Box::new(move || {
            body(&own);
            drop(presence);
        }))
    }

    fn enter(&self, breaker: Breaker) -> Presence<P::Section> {
        Presence::enter(&self.open, &self.service.section, breaker)
    }

    /// Waits for the stop and the drain; called from a kernel thread, with the result of [`Blocking::start`].
    pub(super) fn finish(self, started: io::Result<()>) -> Result<(), Error> {
        if started.is_err() {
            self.stop.request();
        }
        self.open.wait_for_stop(&self.stop, &self.service.bounds);
        self.open.drain();
        started.map_err(|source| Error::Start { what: "the handlers", source })
    }
}

/// Sends an empty datagram, which wakes a receive loop to check the stop.
fn knock(addr: SocketAddr) -> io::Result<usize> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any)?.send_to(&[], addr)
}

fn accept_loop<P: Platform>(shared: &Blocking<P>, listener: &P::Listener) {
    let (service, spare) = (&shared.service, Spare::new());
    loop {
        let accepted = P::accept(listener);
        if shared.stop.is_requested() {
            return;
        }
        let admitted = match accepted {
            Ok(stream) if spare.restore() => admit(shared, stream),
            Ok(stream) => {
                turn_away(service, stream);
                spare.restore();
                Ok(())
            }
            Err(error) if spare.give_up(&error, &service.bounds) => continue,
            Err(error) => Err(error),
        };
        if admitted.is_err() {
            service.counters.accept_errors.add();
            P::pause(ACCEPT_PAUSE);
        }
    }
}

fn turn_away<S: Section>(service: &Service<S>, mut stream: impl Write) {
    // The client may be gone already.
    let _ = stream.write_all(service.too_many());
}

fn admit<P: Platform>(shared: &Blocking<P>, mut stream: P::Stream) -> io::Result<()> {
    let Some(guard) = Connection::open(&shared.service) else {
        turn_away(&shared.service, stream);
        return Ok(());
    };
    let breaker = match P::breaker(&stream) {
        Ok(breaker) => breaker,
        Err(error) => {
            shared.service.bounds.hit(Limit::Descriptors);
            turn_away(&shared.service, stream);
            return Err(error);
        }
    };
    let presence = shared.enter(breaker);
    let service = shared.service.clone();
    shared.platform.spawn(Box::new(move || {
        // A socket error means that the client has vanished.
        let _ = converse(service, &mut stream, &presence);
        presence.watch().give_up(|| P::reset_on_close(&stream));
        drop((stream, presence, guard));
    }))
}

fn converse<S: Section>(
    service: Arc<Service<S>>,
    stream: &mut (impl Read + Write),
    presence: &Presence<S>,
) -> io::Result<()> {
    let watch = presence.watch();
    let mut session = Session::new(service);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let then = session.advance();
        send(stream, session.replies(), watch)?;
        match then {
            NextStep::Advance => watch.works(),
            NextStep::Close => return linger(stream, &mut buffer, presence),
            NextStep::Read => {
                session.settle();
                watch.waits(session.waits());
                let read = stream.read(&mut buffer);
                watch.works();
                match read {
                    Ok(0) => {
                        match watch.hit() {
                            Some(limit) => session.refuse(limit),
                            None => session.end(),
                        }
                        return send(stream, session.replies(), watch);
                    }
                    Ok(n) => session.push(&buffer[..n]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Writes the replies, as fast as the client takes them.
fn send(stream: &mut impl Write, replies: &mut Vec<u8>, watch: &Watch) -> io::Result<()> {
    let mut written = 0;
    watch.begins(replies.len());
    while written < replies.len() {
        watch.moves(Waits::Reply);
        // One call on a kernel thread waits until all of it is written: short pieces make progress visible.
        let end = replies.len().min(written + FLUSH_AT);
        match stream.write(&replies[written..end]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    replies.clear();
    Ok(())
}

/// After the last reply, discards further input so that the client sees that reply.
fn linger<S: Section>(
    stream: &mut impl Read,
    buffer: &mut [u8],
    presence: &Presence<S>,
) -> io::Result<()> {
    presence.shut(Shutdown::Write);
    presence.watch().moves(Waits::Linger);
    let mut left = LINGER;
    loop {
        match stream.read(buffer)? {
            0 => return Ok(()),
            n if n > left => return Ok(()),
            n => left -= n,
        }
    }
}

fn receive_loop<P: Platform>(shared: &Blocking<P>, socket: &Arc<P::Udp>, addr: SocketAddr) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let received = P::receive(socket, &mut buffer);
        if shared.stop.is_requested() {
            // If the socket has no room for it, the next loop wakes anyway.
            let _ = knock(addr);
            return;
        }
        let Ok((len, peer)) = received else { continue };
        let at = Instant::now();
        let Some(ticket) = shared.service.admit(len) else { continue };
        let socket = socket.clone();
        shared.platform.hand_on(&buffer[..len], move |bytes| {
            answer::<P>(&ticket, &socket, bytes, at, peer);
            drop(ticket);
        });
    }
}

fn answer<P: Platform>(
    ticket: &Ticket<P::Section>,
    socket: &P::Udp,
    bytes: &[u8],
    at: Instant,
    peer: SocketAddr,
) {
    let service = ticket.service();
    if let Some(answer) = service.datagram(bytes, at)
        && P::send(socket, &answer, peer).is_err()
    {
        service.counters.send_errors.add();
    }
}
