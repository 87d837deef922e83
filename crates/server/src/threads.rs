//! The handlers on kernel threads, as servers without an event loop are built: one thread per connection,
//! because a connection mostly waits and would occupy a pool's thread, and a pool for datagrams.

use rustix::net::sockopt::set_socket_linger;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::bind::Sockets;
use super::blocking::{Blocking, Platform, Work};
use super::open::Breaker;
use super::service::Service;
use super::{Error, Stop};
use heddle_store::NoSection;

/// Threads of the pool per CPU, so that a few SCANs do not occupy them all.
const POOL_PER_CPU: usize = 4;

/// The default number of threads.
fn default_pool() -> usize {
    thread::available_parallelism().map_or(1, usize::from).max(1) * POOL_PER_CPU
}

pub(super) fn run(
    service: Arc<Service<NoSection>>,
    sockets: Sockets,
    stop: &Stop,
    pool: Option<usize>,
    max_in_flight: usize,
) -> Result<(), Error> {
    // As long as the number of datagrams that the service admits, so it is never full.
    let (queue, work) = crossbeam_channel::bounded(max_in_flight);
    let workers = start_pool(pool.unwrap_or_else(default_pool), &work)
        .map_err(|source| Error::Start { what: "the thread pool", source })?;
    let server = Blocking::new(Threads { queue }, service, stop);
    let started = server.start(sockets.tcp, sockets.udp);
    let served = server.finish(started);
    // The queue's senders are dropped with the loops: the workers drain it and end.
    workers.into_iter().for_each(|worker| drop(worker.join()));
    served
}

fn start_pool(size: usize, work: &Receiver<Work>) -> io::Result<Vec<JoinHandle<()>>> {
    let start = |n| {
        let work = work.clone();
        thread::Builder::new().name(format!("pool-{n}")).spawn(move || worker(&work))
    };
    (0..size).map(start).collect()
}

fn worker(work: &Receiver<Work>) {
    for item in work {
        // The panic's message is already printed; the pool must not lose a thread to it.
        let _ = catch_unwind(AssertUnwindSafe(item));
    }
}

#[derive(Clone)]
struct Threads {
    queue: Sender<Work>,
}

impl Platform for Threads {
    type Section = NoSection;
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Udp = UdpSocket;

    fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn breaker(stream: &TcpStream) -> io::Result<Breaker> {
        let other = stream.try_clone()?;
        // An error means that the client has already closed it.
        Ok(Box::new(move |how: Shutdown| drop(other.shutdown(how))))
    }

    fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
        Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
    }

    fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        socket.recv_from(buffer)
    }

    fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        socket.send_to(bytes, to).map(drop)
    }

    fn spawn(&self, work: Work) -> io::Result<()> {
        thread::Builder::new().name("connection".into()).spawn(work).map(drop)
    }

    fn hand_on(&self, datagram: &[u8], answer: impl FnOnce(&[u8]) + Send + 'static) {
        let bytes = datagram.to_vec();
        // It fails only if the pool has ended, and then the server has too.
        let _ = self.queue.send(Box::new(move || answer(&bytes)));
    }

    fn pause(time: Duration) {
        thread::sleep(time);
    }
}
