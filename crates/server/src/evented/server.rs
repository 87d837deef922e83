//! Connections, datagrams and threads of one server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heddle::events::Interest;

use super::backend::Backend;
use super::connection::{Connection, Wants};
use super::protocol::Protocol;
use super::table::Table;
use crate::bind::Sockets;
use crate::limits::Spare;
use crate::session::READ_SIZE;
use crate::{ACCEPT_PAUSE, DRAIN, Error, Stop};
use heddle_proto::udp::MAX_DATAGRAM;

/// The listener's token; a connection's token is its slot number.
const LISTENER: u64 = 1 << 40;
/// The first token of the datagram sockets.
const DATAGRAMS: u64 = 1 << 41;
/// Most connections accepted per event.
const ACCEPTS: usize = 32;

/// A server that waits with `B` and speaks `P`.
pub(super) struct EventServer<P: Protocol, B: Backend> {
    protocol: P,
    backend: Arc<B>,
    table: Table<Open<P::Conversation, B::Key>>,
    listener: Option<TcpListener>,
    /// The same socket several times: one registration is handled by one thread at a time.
    datagrams: Vec<UdpSocket>,
    closing: AtomicBool,
    spare: Spare,
}

struct Open<C, K> {
    connection: Connection<C>,
    key: K,
}

impl<P: Protocol, B: Backend> EventServer<P, B> {
    /// Serves on `threads` threads until `stop`.
    pub(super) fn run(
        protocol: P,
        backend: Arc<B>,
        sockets: Sockets,
        threads: usize,
        max_connections: usize,
        stop: &Stop,
    ) -> Result<(), Error> {
        let cannot = |what| move |source| Error::Start { what, source };
        let (listener, datagrams) = prepare(sockets, threads).map_err(cannot("the sockets"))?;
        let (table, closing) = (Table::new(max_connections), AtomicBool::new(false));
        let spare = Spare::new();
        let server =
            Arc::new(EventServer { protocol, backend, table, listener, datagrams, closing, spare });
        let keys = server.register().map_err(cannot("the sockets"))?;
        let (stop_sender, stopped) = mpsc::channel();
        stop.on_request(move || {
            let _ = stop_sender.send(());
        });
        let workers = server.spawn(threads, stop);
        let period = server.protocol.bounds().limits.period();
        while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(period) {
            server.sweep();
        }
        server.drain(keys);
        server.backend.stop();
        join(workers.map_err(cannot("the threads"))?).map_err(cannot("a thread's queue"))
    }

    /// Registers the listener and the datagram sockets; returns their keys, for [`EventServer::drain`].
    fn register(&self) -> io::Result<Vec<B::Key>> {
        let mut keys = Vec::new();
        if let Some(listener) = &self.listener {
            keys.push(self.backend.add(listener.as_fd(), LISTENER, Interest::READ)?);
        }
        for (socket, token) in self.datagrams.iter().zip(DATAGRAMS..) {
            keys.push(self.backend.add(socket.as_fd(), token, Interest::READ)?);
        }
        Ok(keys)
    }

    fn spawn(
        self: &Arc<Self>,
        threads: usize,
        stop: &Stop,
    ) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
        let start = |number| {
            let (server, stop) = (self.clone(), stop.clone());
            let builder = thread::Builder::new().name(format!("event-{number}"));
            builder.spawn(move || {
                let mut scratch = vec![0; READ_SIZE.max(MAX_DATAGRAM)];
                let handle = &mut |token| server.handle(token, &mut scratch);
                let worked = server.backend.work(number, handle);
                // A thread returns before the stop only with an error.
                stop.request();
                worked
            })
        };
        let workers: io::Result<Vec<_>> = (0..threads).map(start).collect();
        if workers.is_err() {
            stop.request();
        }
        workers
    }

    /// Answers what has arrived, then cuts clients that do not read the answers.
    fn drain(&self, keys: Vec<B::Key>) {
        let listener = self.listener.iter().map(AsFd::as_fd);
        let sockets = listener.chain(self.datagrams.iter().map(AsFd::as_fd));
        keys.into_iter().zip(sockets).for_each(|(key, fd)| self.backend.remove(key, fd));
        self.closing.store(true, Ordering::SeqCst);
        for (how, patience) in [(Shutdown::Read, DRAIN), (Shutdown::Both, Duration::from_secs(1))] {
            // An error means that the client has already closed it.
            self.table.for_each(|open| drop(open.connection.stream().shutdown(how)));
            if self.table.wait_empty(patience) {
                return;
            }
        }
    }

    /// Ends connections that have hit a limit.
    fn sweep(&self) {
        let (now, bounds) = (Instant::now(), self.protocol.bounds());
        self.table.for_each_at_rest(|open| open.connection.sweep(now, bounds));
        bounds.report_hits(now);
    }

    /// Handles an event; returns whether it is known that there is nothing more to read.
    fn handle(&self, token: u64, scratch: &mut [u8]) -> bool {
        match token {
            LISTENER => self.accept(),
            DATAGRAMS.. => self.receive((token - DATAGRAMS) as usize, scratch),
            number => self.drive(number as u32, scratch),
        }
    }

    fn accept(&self) -> bool {
        let Some(listener) = &self.listener else { return true };
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok((stream, _)) if self.spare.restore() => {
                    if self.admit(stream).is_err() {
                        self.protocol.accept_failed();
                    }
                }
                Ok((stream, _)) => {
                    turn_away(&self.protocol, stream);
                    self.spare.restore();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if self.spare.give_up(&error, self.protocol.bounds()) => {}
                Err(_) => {
                    self.protocol.accept_failed();
                    thread::sleep(ACCEPT_PAUSE);
                    return false;
                }
            }
        }
        false
    }

    fn admit(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let Some(talk) = self.protocol.open() else {
            turn_away(&self.protocol, stream);
            return Ok(());
        };
        // There are as many slots as conversations: none is free only while another thread is returning one.
        let Some(number) = self.table.take() else { return Err(ErrorKind::QuotaExceeded.into()) };
        // A thread that gets its event before it is stored waits for the lock.
        let mut place = self.table.lock(number);
        match self.backend.add(stream.as_fd(), number.into(), Interest::READ) {
            Ok(key) => *place = Some(Open { connection: Connection::new(stream, talk), key }),
            Err(error) => {
                drop(place);
                self.table.give_back(number);
                return Err(error);
            }
        }
        // Either this sees the stop, or the stop sees the connection.
        if self.closing.load(Ordering::SeqCst)
            && let Some(open) = &*place
        {
            let _ = open.connection.stream().shutdown(Shutdown::Read);
        }
        Ok(())
    }

    fn drive(&self, number: u32, scratch: &mut [u8]) -> bool {
        let mut place = self.table.lock(number);
        let Some(open) = &mut *place else { return true };
        // The panic's message is already printed; only its connection ends.
        let driven = catch_unwind(AssertUnwindSafe(|| open.connection.drive(scratch)));
        let (interest, is_drained) = match driven.unwrap_or(Wants::Close) {
            Wants::Read(drained) => (Interest::READ, drained),
            Wants::Room => (Interest::WRITE, true),
            // There is room: the event is delivered again after others had their turn.
            Wants::Turn => (Interest::WRITE, false),
            Wants::Close => return self.close(number, place.take()),
        };
        if open.connection.interest != interest {
            let fd = open.connection.stream().as_fd();
            if self.backend.change(open.key, fd, number.into(), interest).is_err() {
                return self.close(number, place.take());
            }
            open.connection.interest = interest;
        }
        is_drained
    }

    fn close(&self, number: u32, open: Option<Open<P::Conversation, B::Key>>) -> bool {
        if let Some(open) = open {
            self.backend.remove(open.key, open.connection.stream().as_fd());
            drop(open);
            self.table.give_back(number);
        }
        true
    }

    /// Answers one datagram; the next goes to the first free thread.
    fn receive(&self, socket: usize, buffer: &mut [u8]) -> bool {
        let socket = &self.datagrams[socket];
        let (len, peer) = match socket.recv_from(buffer) {
            Ok(received) => received,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
        let at = Instant::now();
        let answer = || self.protocol.datagram(&buffer[..len], at);
        if let Ok(Some(answer)) = catch_unwind(AssertUnwindSafe(answer))
            && socket.send_to(&answer, peer).is_err()
        {
            self.protocol.send_failed();
        }
        false
    }
}

fn turn_away<P: Protocol>(protocol: &P, stream: TcpStream) {
    // The client may be gone already. Its input is read first: unread input would reset the connection and
    // lose the text.
    let _ = stream.set_nonblocking(true).and_then(|()| (&stream).write(protocol.too_many()));
    let _ = stream.shutdown(Shutdown::Write).and_then(|()| (&stream).read(&mut [0; 4096]));
}

/// Makes the sockets non-blocking.
fn prepare(sockets: Sockets, threads: usize) -> io::Result<(Option<TcpListener>, Vec<UdpSocket>)> {
    let listener = sockets.tcp.map(|(listener, _)| listener);
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
    }
    let Some((socket, _)) = sockets.udp else { return Ok((listener, Vec::new())) };
    socket.set_nonblocking(true)?;
    let others = (1..threads).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>()?;
    Ok((listener, std::iter::once(socket).chain(others).collect()))
}

fn join(workers: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let panicked = |_| Err(io::Error::other("panicked"));
    workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(panicked))
}
