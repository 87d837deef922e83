//! The time-dilated server: six threads, one socket each, and a service that sleeps.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use heddle_bpf::MapView;
use heddle_core::Ns;

use super::dilation::Dilation;
use super::sockets::Sockets;
use super::source::{Handle, Workers};
use super::wire;
use heddle_load::Op;

/// State shared by the threads.
struct Shared {
    dilation: Dilation,
    /// The executors' lines, if the policy has them: the threads publish their state there.
    lines: Option<MapView>,
    received: AtomicU64,
}

/// A running server; it stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    _workers: Workers,
}

impl Server {
    /// Starts the threads on `sockets` from `bind`.
    ///
    /// # Errors
    /// System errors.
    pub fn start(
        sockets: Vec<UdpSocket>,
        kind: Sockets,
        dilation: Dilation,
        lines: Option<MapView>,
    ) -> io::Result<Server> {
        let first = sockets.first().ok_or_else(|| io::Error::other("no socket"))?;
        let address = first.local_addr()?;
        let shared = Arc::new(Shared { dilation, lines, received: AtomicU64::new(0) });
        let serving = Arc::clone(&shared);
        let handle: Arc<Handle> = Arc::new(move |k, datagram, from, socket| {
            serving.serve(k, datagram, from, socket);
        });
        let workers = Workers::start(sockets, kind, handle)?;
        Ok(Server { shared, address, _workers: workers })
    }

    /// Its address.
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

impl Shared {
    fn serve(&self, k: usize, datagram: &[u8], from: SocketAddr, socket: &UdpSocket) {
        let Some((op, id)) = wire::asked(datagram) else { return };
        self.received.fetch_add(1, Ordering::Relaxed);
        let took = self.work(k, op);
        // The client may be gone: no answer is needed then.
        let _ = socket.send_to(&wire::answer(id, took), from);
    }

    fn work(&self, k: usize, op: Op) -> Ns {
        let begin = Instant::now();
        self.mark(k, if op == Op::Scan { wire::SCAN } else { wire::GET });
        thread::sleep(self.dilation.service(op).into());
        self.mark(k, 0);
        begin.elapsed().into()
    }

    /// The class that the policy `scan-avoid` reads; 0 when it is idle.
    fn mark(&self, k: usize, class: u8) {
        if let Some(lines) = &self.lines {
            lines.half(k, 0).store(class.into(), Ordering::Relaxed);
        }
    }
}
