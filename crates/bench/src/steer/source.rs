//! The sources from which server threads take requests.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heddle_steer::late::ClassSockets;

use super::dilation::EXECUTORS;
use super::sockets::Sockets;
use super::wire;

/// Interval at which a waiting thread checks whether it should end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One thread's source.
enum Source {
    /// A socket; the thread sleeps on it, which is what the policy `jiq` sees.
    Socket(UdpSocket),
    /// The class sockets, for pulling, and the socket for answers.
    Classes(Arc<Queues>),
}

struct Queues {
    classes: ClassSockets,
    sockets: Vec<UdpSocket>,
}

fn sources(sockets: Vec<UdpSocket>, kind: Sockets) -> io::Result<Vec<Source>> {
    if let Sockets::Classes(most) = kind {
        let copies = sockets.iter().map(UdpSocket::try_clone).collect::<io::Result<Vec<_>>>()?;
        let last = sockets.len() - 1;
        let classes = ClassSockets::new(copies.into_iter().map(Into::into))?.limit(last, most);
        let queues = Arc::new(Queues { classes, sockets });
        return Ok((0..EXECUTORS).map(|_| Source::Classes(Arc::clone(&queues))).collect());
    }
    let one = |k: usize| {
        let socket = sockets[k % sockets.len()].try_clone()?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Source::Socket(socket))
    };
    (0..EXECUTORS).map(one).collect()
}

/// Threads that handle requests; they end when this is dropped.
pub struct Workers {
    stop: Arc<AtomicBool>,
    queues: Option<Arc<Queues>>,
    threads: Vec<JoinHandle<()>>,
}

/// Handles a datagram: thread number, bytes, sender, and socket for the answer.
pub type Handle = dyn Fn(usize, &[u8], SocketAddr, &UdpSocket) + Send + Sync;

impl Workers {
    /// Starts a thread for each executor on `sockets` from [`super::sockets::bind`].
    ///
    /// # Errors
    /// System errors.
    pub fn start(
        sockets: Vec<UdpSocket>,
        kind: Sockets,
        handle: Arc<Handle>,
    ) -> io::Result<Workers> {
        let sources = sources(sockets, kind)?;
        let queues = sources.iter().find_map(|source| match source {
            Source::Classes(queues) => Some(Arc::clone(queues)),
            Source::Socket(_) => None,
        });
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = Workers { stop: Arc::clone(&stop), queues, threads: Vec::new() };
        for (k, source) in sources.into_iter().enumerate() {
            let (stop, handle) = (Arc::clone(&stop), Arc::clone(&handle));
            let thread = thread::Builder::new().name(format!("executor-{k}"));
            workers.threads.push(thread.spawn(move || {
                heddle_sys::thread::make_punctual();
                source.serve(k, &stop, &*handle);
            })?);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Fails only without a descriptor; the bell has one.
        self.queues.iter().for_each(|queues| drop(queues.classes.stop()));
        // A thread that panicked has printed its message.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Source {
    fn serve(&self, k: usize, stop: &AtomicBool, handle: &Handle) {
        let mut buffer = [0; wire::LEN + 1];
        match self {
            Source::Socket(socket) => {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        handle(k, &buffer[..length], from, socket);
                    }
                }
            }
            Source::Classes(queues) => {
                let mut puller = queues.classes.puller();
                while let Ok(Some(datagram)) = puller.receive(&mut buffer) {
                    if let Some(from) = datagram.peer {
                        let socket = &queues.sockets[datagram.class];
                        handle(k, &buffer[..datagram.length], from, socket);
                    }
                }
            }
        }
    }
}
