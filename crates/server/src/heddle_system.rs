//! The handlers on Heddle's threads: one task per connection, and a set of tasks that receive datagrams and
//! answer them directly, one at a time each.
//!
//! Why not one task per datagram, which would be cheap to spawn? Each task has its own thread-local storage;
//! what libraries keep there (RocksDB's references to the state of the tree, `crossbeam-epoch`'s participant)
//! is set up at a task's first request and torn down when the task ends. A long-lived task keeps it. To the
//! policy each request is new all the same: its task was woken for it, or yielded before it.
//!
//! The number of receiving tasks bounds the requests in flight. More wait in the socket, where the kernel
//! drops what does not fit.

use std::fmt::Write as _;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use heddle::net::{TcpListener, TcpStream, UdpSocket};
use heddle::{Runtime, Stats};

use super::bind::Sockets;
use super::blocking::{Blocking, Platform, Work};
use super::open::Breaker;
use super::options::HeddleOptions;
use super::service::Service;
use super::{Error, Stop};
use heddle_store::Section;

/// Disables preemption, so that no task is switched out while it holds a lock inside a library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoPreempt;

impl Section for NoPreempt {
    #[inline]
    fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        heddle::no_preempt(work)
    }
}

/// Starts the runtime.
pub(super) fn build(options: &HeddleOptions) -> Result<Runtime, Error> {
    let mut builder = Runtime::builder();
    if let Some(policy) = &options.policy {
        builder = builder.policy(policy);
    }
    if let Some(mechanism) = options.mechanism {
        builder = builder.mechanism(mechanism);
    }
    if let Some(workers) = options.workers {
        builder = builder.workers(workers);
    }
    if let Some(cpu) = options.dispatcher {
        builder = builder.dispatcher(cpu);
    }
    Ok(builder.build()?)
}

pub(super) fn run(
    service: Arc<Service<NoPreempt>>,
    sockets: Sockets,
    stop: &Stop,
    runtime: &Runtime,
    options: &HeddleOptions,
) -> Result<(), Error> {
    let policy = options.policy.clone().unwrap_or_else(|| runtime.policy().to_owned());
    service.describe_runtime(move || describe(&policy));
    let server = Blocking::new(Heddle { receivers: options.handlers }, service, stop);
    // In a task, since sockets and tasks belong to the runtime of the task that makes them.
    let has_lanes = runtime.network().is_some();
    let started = runtime.run(|| start(&server, sockets, has_lanes));
    server.finish(started)
}

fn start(server: &Blocking<Heddle>, sockets: Sockets, has_lanes: bool) -> io::Result<()> {
    // Lanes serve what is bound by the runtime: an address of the kernel's socket is bound again.
    let tcp = sockets.tcp.map(|(socket, addr)| {
        let listener = match has_lanes {
            true => drop_then(socket, || TcpListener::bind(addr))?,
            false => TcpListener::from_std(socket)?,
        };
        Ok((listener, addr))
    });
    let udp = sockets.udp.map(|(socket, addr)| {
        let socket = match has_lanes {
            true => drop_then(socket, || UdpSocket::bind(addr))?,
            false => UdpSocket::from_std(socket)?,
        };
        Ok((socket, addr))
    });
    let (tcp, udp): (io::Result<_>, io::Result<_>) = (tcp.transpose(), udp.transpose());
    server.start(tcp?, udp?)
}

fn drop_then<S, T>(socket: S, then: impl FnOnce() -> T) -> T {
    drop(socket);
    then()
}

/// The runtime's part of INFO; called from one of its tasks.
fn describe(policy: &str) -> String {
    let Ok(stats) = heddle::stats() else { return String::new() };
    let mut text = format!("policy:{policy}\r\n");
    for (name, value) in counters(&stats) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{name}:{value}\r\n");
    }
    let queues: Vec<String> = stats.queue_lengths.iter().map(usize::to_string).collect();
    text + &format!("queue_lengths:{}\r\n", queues.join(","))
}

fn counters(stats: &Stats) -> [(&'static str, u64); 10] {
    [
        ("switches", stats.switches),
        ("preemptions", stats.preemptions),
        ("interrupts", stats.interrupts),
        ("preemptions_skipped", stats.preemptions_skipped),
        ("steals", stats.steals),
        ("tasks_spawned", stats.spawned),
        ("tasks_exited", stats.exited),
        ("sleeps", stats.sleeps),
        ("takeovers", stats.takeovers),
        ("kernel_threads", stats.kernel_threads as u64),
    ]
}

#[derive(Clone)]
struct Heddle {
    receivers: usize,
}

impl Platform for Heddle {
    type Section = NoPreempt;
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Udp = UdpSocket;

    fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A duplicate descriptor, which kernel threads use without the runtime; another handle if a lane serves the
    /// connection.
    fn breaker(stream: &TcpStream) -> io::Result<Breaker> {
        let Some(fd) = stream.kernel_fd() else {
            let other = stream.try_clone()?;
            return Ok(Box::new(move |how: Shutdown| drop(other.shutdown(how))));
        };
        let other = std::net::TcpStream::from(fd.try_clone_to_owned()?);
        // An error means that the client has already closed it.
        Ok(Box::new(move |how: Shutdown| drop(other.shutdown(how))))
    }

    fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
        stream.set_zero_linger()
    }

    fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        socket.recv_from(buffer)
    }

    fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        socket.send_to(bytes, to).map(drop)
    }

    fn spawn(&self, work: Work) -> io::Result<()> {
        heddle::Builder::new().name("handler").spawn(work).map(drop)
    }

    fn receivers(&self) -> usize {
        self.receivers
    }

    fn hand_on(&self, datagram: &[u8], answer: impl FnOnce(&[u8]) + Send + 'static) {
        // The panic's message is already printed; the server must not lose a handler to it.
        let _ = catch_unwind(AssertUnwindSafe(|| answer(datagram)));
        // If the next datagram is already here, its request must not start with the rest of this one's quantum.
        heddle::yield_now();
    }

    fn pause(time: Duration) {
        heddle::time::sleep(time);
    }
}
