//! The time-dilated server: six threads, a socket each, and a service that sleeps.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use heddle_core::Ns;
use heddle_sys::bpf::MapView;
use socket2::{Domain, Socket, Type};

use super::dilation::{Dilation, EXECUTORS};
use super::source::{Source, sources};
use super::wire;
use crate::load::Op;

/// Which sockets the threads receive on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// One each, of one reuseport group.
    Own,
    /// One for all: late binding, first come first served.
    Shared,
    /// One for each class, the short requests' first; so many threads at most serve the last one at once.
    Classes(usize),
}

/// Bound sockets with room for what the kernel grants by default.
///
/// # Errors
/// Those of the system.
pub fn bind(sockets: Sockets) -> io::Result<Vec<UdpSocket>> {
    let count = match sockets {
        Sockets::Own => EXECUTORS,
        Sockets::Shared => 1,
        Sockets::Classes(_) => 2,
    };
    let mut bound: Vec<UdpSocket> = Vec::new();
    for _ in 0..count {
        let at =
            bound.first().map_or(Ok((Ipv4Addr::LOCALHOST, 0).into()), UdpSocket::local_addr)?;
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&at.into())?;
        bound.push(socket.into());
    }
    Ok(bound)
}

/// What the threads share.
struct Shared {
    dilation: Dilation,
    /// The executors' lines, if the policy has them: the threads say there what they do.
    lines: Option<MapView>,
    received: AtomicU64,
    stop: AtomicBool,
}

/// A server; it ends when dropped.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    address: SocketAddr,
}

impl Server {
    /// Starts the threads on `sockets`, which [`bind`] made.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(
        sockets: Vec<UdpSocket>,
        kind: Sockets,
        dilation: Dilation,
        lines: Option<MapView>,
    ) -> io::Result<Server> {
        let first = sockets.first().ok_or_else(|| io::Error::other("no socket"))?;
        let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { dilation, lines, received, stop });
        let address = first.local_addr()?;
        let mut server = Server { shared: Arc::clone(&shared), threads: Vec::new(), address };
        let sources = sources(sockets, kind)?;
        for (k, source) in sources.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let name = thread::Builder::new().name(format!("executor-{k}"));
            server.threads.push(name.spawn(move || shared.serve(k, &source))?);
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests that have reached a thread.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has said so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn serve(&self, k: usize, source: &Source) {
        exact_sleeps();
        let mut buffer = [0; wire::LEN + 1];
        while !self.stop.load(Ordering::Relaxed) {
            let Some(taken) = source.take(&mut buffer) else { continue };
            let Some((op, id)) = wire::asked(&buffer[..taken.length]) else { continue };
            self.received.fetch_add(1, Ordering::Relaxed);
            let took = self.work(k, op);
            // A client that is gone needs no answer.
            let _ = taken.socket.send_to(&wire::answer(id, took), taken.from);
        }
    }

    fn work(&self, k: usize, op: Op) -> Ns {
        let begin = Instant::now();
        self.mark(k, if op == Op::Scan { wire::SCAN } else { wire::GET });
        thread::sleep(self.dilation.service(op).into());
        self.mark(k, 0);
        begin.elapsed().into()
    }

    /// The class that the policy `scan-avoid` reads; 0 when there is nothing to do.
    fn mark(&self, k: usize, class: u8) {
        if let Some(lines) = &self.lines {
            lines.half(k, 0).store(class.into(), Ordering::Relaxed);
        }
    }
}

/// Timers fire when asked, not up to 50 us later.
pub fn exact_sleeps() {
    // It fails on no kernel that there is; sleeps would be longer, which is measured.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
