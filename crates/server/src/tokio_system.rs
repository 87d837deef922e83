//! The handlers on tokio, as a careful user would write them: one task per connection, one per datagram.
//! A SCAN runs to its end on its worker, as any CPU-bound handler does there.

use std::io;
use std::net::{Shutdown, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc, watch};

use super::bind::Sockets;
use super::connection_guard::Connection;
use super::limits::{Spare, Waits, Watch};
use super::open::{Open, Presence};
use super::service::Service;
use super::session::{LINGER, NextStep, READ_SIZE, Session};
use super::{DRAIN, Error, Stop};
use heddle_proto::udp::MAX_DATAGRAM;
use heddle_store::NoSection;

type Shared = Arc<Service<NoSection>>;

/// Held by every task: one channel announces the stop; the other closes when the last holder is gone.
#[derive(Clone)]
struct Life {
    stopped: watch::Receiver<bool>,
    /// The connections that the sweep checks.
    open: Arc<Open>,
    _alive: mpsc::Sender<()>,
}

impl Life {
    async fn stop(&mut self) {
        // An error means that the sender is gone, which also means stop.
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
    }
}

pub(super) fn run(
    service: Shared,
    sockets: Sockets,
    stop: &Stop,
    workers: Option<usize>,
) -> Result<(), Error> {
    let runtime = build(workers).map_err(|source| Error::Start { what: "tokio", source })?;
    let (stop_sender, stopped) = watch::channel(false);
    let (alive, mut ended) = mpsc::channel(1);
    let life = Life { stopped, open: Arc::default(), _alive: alive };
    stop.on_request(move || {
        stop_sender.send_replace(true);
    });
    let started = {
        let _inside = runtime.enter();
        start(&service, sockets, &life)
    };
    runtime.block_on(async move {
        let mut own = life.clone();
        let sweep = async {
            loop {
                tokio::time::sleep(service.bounds.limits.period()).await;
                life.open.sweep(&service.bounds);
            }
        };
        tokio::select! {
            () = own.stop() => {}
            () = sweep => {}
        }
        drop((own, life));
        // A client that has not read its replies by then loses them.
        let _ = tokio::time::timeout(DRAIN, ended.recv()).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    started.map_err(|source| Error::Start { what: "tokio's sockets", source })
}

fn build(workers: Option<usize>) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    builder.enable_all().build()
}

fn start(service: &Shared, sockets: Sockets, life: &Life) -> io::Result<()> {
    if let Some((listener, _)) = sockets.tcp {
        listener.set_nonblocking(true)?;
        tokio::spawn(accept(service.clone(), tokio_listener(listener)?, life.clone()));
    }
    if let Some((socket, _)) = sockets.udp {
        socket.set_nonblocking(true)?;
        tokio::spawn(receive(service.clone(), tokio_socket(socket)?, life.clone()));
    }
    Ok(())
}

fn tokio_listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::from_std(listener)
}

fn tokio_socket(socket: UdpSocket) -> io::Result<tokio::net::UdpSocket> {
    tokio::net::UdpSocket::from_std(socket)
}

async fn accept(service: Shared, listener: tokio::net::TcpListener, mut life: Life) {
    let spare = Spare::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = life.stop() => return,
        };
        match accepted {
            Ok((stream, _)) if spare.restore() => {
                drop(tokio::spawn(connection(service.clone(), stream, life.clone())))
            }
            Ok((stream, _)) => {
                // A new connection has room for so few bytes: this does not wait.
                let _ = { stream }.write_all(service.too_many()).await;
                spare.restore();
            }
            Err(error) if spare.give_up(&error, &service.bounds) => {}
            Err(_) => {
                service.counters.accept_errors.add();
                tokio::time::sleep(super::ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(service: Shared, mut stream: tokio::net::TcpStream, mut life: Life) {
    let Some(_guard) = Connection::open(&service) else {
        let _ = stream.write_all(service.too_many()).await;
        return;
    };
    let _ = stream.set_nodelay(true);
    let end = Arc::new(Notify::new());
    let breaker = end.clone();
    let breaker = Box::new(move |_: Shutdown| breaker.notify_one());
    let presence = Presence::enter(&life.open, &NoSection, breaker);
    // A socket error means that the client has vanished.
    let _ = converse(service, &mut stream, &mut life, presence.watch(), &end).await;
    presence.watch().give_up(|| stream.set_zero_linger());
    let _ = stream.shutdown().await;
}

async fn converse(
    service: Shared,
    stream: &mut tokio::net::TcpStream,
    life: &mut Life,
    watch: &Watch,
    end: &Notify,
) -> io::Result<()> {
    let mut session = Session::new(service);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let then = session.advance();
        send(stream, session.replies(), watch, end).await?;
        match then {
            NextStep::Advance => watch.works(),
            NextStep::Close => return linger(stream, &mut buffer, watch, end).await,
            NextStep::Read => {
                session.settle();
                watch.waits(session.waits());
                // Biased: what has arrived is answered before the stop.
                let n = tokio::select! {
                    biased;
                    n = stream.read(&mut buffer) => n?,
                    () = life.stop() => 0,
                    () = end.notified() => 0,
                };
                watch.works();
                if n == 0 {
                    match watch.hit() {
                        Some(limit) => session.refuse(limit),
                        None => session.end(),
                    }
                    return send(stream, session.replies(), watch, end).await;
                }
                session.push(&buffer[..n]);
            }
        }
    }
}

/// Writes the replies, as fast as the client takes them.
async fn send(
    stream: &mut tokio::net::TcpStream,
    replies: &mut Vec<u8>,
    watch: &Watch,
    end: &Notify,
) -> io::Result<()> {
    let mut written = 0;
    watch.begins(replies.len());
    while written < replies.len() {
        watch.moves(Waits::Reply);
        written += tokio::select! {
            biased;
            n = stream.write(&replies[written..]) => n?,
            () = end.notified() => return Err(io::ErrorKind::TimedOut.into()),
        };
    }
    replies.clear();
    Ok(())
}

/// After the last reply, discards further input so that the client sees that reply.
async fn linger(
    stream: &mut tokio::net::TcpStream,
    buffer: &mut [u8],
    watch: &Watch,
    end: &Notify,
) -> io::Result<()> {
    stream.shutdown().await?;
    watch.moves(Waits::Linger);
    let mut left = LINGER;
    loop {
        let n = tokio::select! {
            n = stream.read(buffer) => n?,
            () = end.notified() => return Ok(()),
        };
        if n == 0 || n > left {
            return Ok(());
        }
        left -= n;
    }
}

async fn receive(service: Shared, socket: tokio::net::UdpSocket, mut life: Life) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            () = life.stop() => return,
        };
        let Ok((len, peer)) = received else { continue };
        let at = Instant::now();
        let Some(ticket) = service.admit(len) else { continue };
        let (bytes, socket, life) = (buffer[..len].to_vec(), socket.clone(), life.clone());
        tokio::spawn(async move {
            let service = ticket.service();
            if let Some(answer) = service.datagram(&bytes, at)
                && socket.send_to(&answer, peer).await.is_err()
            {
                service.counters.send_errors.add();
            }
            drop(life);
        });
    }
}
