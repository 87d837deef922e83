//! The handlers on anything that blocks: kernel threads, and Heddle's threads, whose sockets and spawn
//! have the same shape. A [`Platform`] says which.
//!
//! Stopping: the accept loop and the receive loop are woken by a connection and a datagram of our own;
//! each open connection is half closed, so that its handler answers what has arrived, reads the end, and
//! leaves. After [`super::DRAIN`] connections are cut, whoever does not read the replies by then loses
//! them.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection_guard::Connection;
use super::service::{Service, Ticket};
use super::session::{READ_SIZE, Session, Then};
use super::{ACCEPT_PAUSE, DRAIN, Error, Stop, TOO_MANY};
use crate::proto::udp::MAX_DATAGRAM;
use crate::store::Section;

/// Shuts down a connection from outside its handler.
pub(super) type Breaker = Box<dyn Fn(Shutdown) + Send>;
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
    fn receive(socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    fn send(socket: &Self::Udp, bytes: &[u8], to: SocketAddr) -> io::Result<()>;
    /// Spawns a loop or a connection: it lives long and mostly waits.
    fn spawn(&self, work: Work) -> io::Result<()>;
    /// Spawns the answer to one datagram: it never waits for a client.
    fn spawn_short(&self, work: Work);
}

/// What the loops and handlers of one server share.
struct Shared<P: Platform> {
    platform: P,
    service: Arc<Service<P::Section>>,
    stop: Stop,
    open: Arc<Open>,
}

impl<P: Platform> Clone for Shared<P> {
    fn clone(&self) -> Self {
        let Shared { platform, service, stop, open } = self;
        Shared {
            platform: platform.clone(),
            service: service.clone(),
            stop: stop.clone(),
            open: open.clone(),
        }
    }
}

/// Serves until the stop and the drain; called from a kernel thread.
pub(super) fn serve<P: Platform>(
    platform: P,
    service: Arc<Service<P::Section>>,
    tcp: Option<(P::Listener, SocketAddr)>,
    udp: Option<(P::Udp, SocketAddr)>,
    stop: &Stop,
) -> Result<(), Error> {
    let shared = Shared { platform, service, stop: stop.clone(), open: Arc::default() };
    let started = start(&shared, tcp, udp);
    if started.is_err() {
        stop.request();
    }
    shared.open.wait_for_stop(stop);
    shared.open.drain();
    started.map_err(|source| Error::Start { what: "threads", source })
}

fn start<P: Platform>(
    shared: &Shared<P>,
    tcp: Option<(P::Listener, SocketAddr)>,
    udp: Option<(P::Udp, SocketAddr)>,
) -> io::Result<()> {
    if let Some((listener, addr)) = tcp {
        let (own, presence) = (shared.clone(), shared.enter(Box::new(|_| ())));
        shared.platform.spawn(Box::new(move || {
            accept_loop(&own, &listener);
            drop(presence);
        }))?;
        shared.stop.on_request(move || drop(TcpStream::connect_timeout(&addr, DRAIN)));
    }
    if let Some((socket, addr)) = udp {
        let (own, presence) = (shared.clone(), shared.enter(Box::new(|_| ())));
        shared.platform.spawn(Box::new(move || {
            receive_loop(&own, socket);
            drop(presence);
        }))?;
        shared.stop.on_request(move || drop(knock(addr)));
    }
    Ok(())
}

/// An empty datagram, to be received by a loop that looks at the stop next.
fn knock(addr: SocketAddr) -> io::Result<usize> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any)?.send_to(&[], addr)
}

fn accept_loop<P: Platform>(shared: &Shared<P>, listener: &P::Listener) {
    loop {
        let accepted = P::accept(listener);
        if shared.stop.is_requested() {
            return;
        }
        if accepted.and_then(|stream| admit(shared, stream)).is_err() {
            shared.service.counters.accept_errors.add();
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }
}

fn admit<P: Platform>(shared: &Shared<P>, mut stream: P::Stream) -> io::Result<()> {
    let Some(guard) = Connection::open(&shared.service) else {
        // The client may be gone already.
        let _ = stream.write_all(TOO_MANY);
        return Ok(());
    };
    let presence = shared.enter(P::breaker(&stream)?);
    let service = shared.service.clone();
    shared.platform.spawn(Box::new(move || {
        // An error of the socket is the client's end: it has vanished.
        let _ = converse(service, &mut stream);
        drop((stream, presence, guard));
    }))
}

fn converse<S: Section>(
    service: Arc<Service<S>>,
    stream: &mut (impl Read + Write),
) -> io::Result<()> {
    let mut session = Session::new(service);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let then = session.advance();
        stream.write_all(session.replies())?;
        session.replies().clear();
        match then {
            Then::Advance => {}
            Then::Close => return Ok(()),
            Then::Read => match stream.read(&mut buffer) {
                Ok(0) => {
                    session.end();
                    return stream.write_all(session.replies());
                }
                Ok(n) => session.push(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
        }
    }
}

fn receive_loop<P: Platform>(shared: &Shared<P>, socket: P::Udp) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let received = P::receive(&socket, &mut buffer);
        if shared.stop.is_requested() {
            return;
        }
        let Ok((len, peer)) = received else { continue };
        let at = Instant::now();
        let Some(ticket) = shared.service.admit() else { continue };
        let (bytes, socket) = (buffer[..len].to_vec(), socket.clone());
        shared.platform.spawn_short(Box::new(move || {
            answer::<P>(&ticket, &socket, &bytes, at, peer);
            drop(ticket);
        }));
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

impl<P: Platform> Shared<P> {
    /// Registers a loop or a connection. In a section, since a task that is switched out while it
    /// holds the lock of a kernel thread's kind would block every worker that wants it.
    fn enter(&self, breaker: Breaker) -> Presence<P::Section> {
        let section = self.service.section.clone();
        let id = section.run(|| self.open.insert(breaker));
        Presence { open: self.open.clone(), section, id }
    }
}

/// One open loop or connection; gone when dropped.
struct Presence<S: Section> {
    open: Arc<Open>,
    section: S,
    id: u64,
}

impl<S: Section> Drop for Presence<S> {
    fn drop(&mut self) {
        self.section.run(|| self.open.remove(self.id));
    }
}

/// All that is open, and how to break it.
#[derive(Default)]
struct Open {
    all: Mutex<Registry>,
    changed: Condvar,
}

#[derive(Default)]
struct Registry {
    next: u64,
    breakers: HashMap<u64, Breaker>,
    stopping: bool,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, breaker: Breaker) -> u64 {
        let mut all = self.lock();
        if all.stopping {
            breaker(Shutdown::Read);
        }
        all.next += 1;
        let id = all.next;
        all.breakers.insert(id, breaker);
        id
    }

    fn remove(&self, id: u64) {
        self.lock().breakers.remove(&id);
        self.changed.notify_all();
    }

    fn wait_for_stop(self: &Arc<Self>, stop: &Stop) {
        let open = self.clone();
        stop.on_request(move || {
            open.lock().stopping = true;
            open.changed.notify_all();
        });
        let all = self.lock();
        drop(self.changed.wait_while(all, |all| !all.stopping));
    }

    /// Half closes everything, waits, and cuts what is left.
    fn drain(&self) {
        for (how, patience) in [(Shutdown::Read, DRAIN), (Shutdown::Both, Duration::from_secs(1))] {
            let all = self.lock();
            all.breakers.values().for_each(|breaker| breaker(how));
            drop(self.changed.wait_timeout_while(all, patience, |all| !all.breakers.is_empty()));
        }
    }
}
