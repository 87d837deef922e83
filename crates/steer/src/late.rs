//! Late binding: requests wait in one queue per class, and free workers take them (Syrup, section 6.3).
//!
//! A policy (`class`, shipped) or the client sends each request to the socket of its class. The workers share
//! all [`ClassSockets`] and pull: first from class 0, then from the next. No request waits behind a longer one
//! while a worker is free, and a *limit* on a class keeps some workers free for the classes above it (as DARC
//! does). A single class is a central queue, first come, first served.
//!
//! ```no_run
//! use heddle_steer::late::ClassSockets;
//! # fn answer(_: &[u8]) {}
//! # fn main() -> std::io::Result<()> {
//! # let (short, long) = (std::net::UdpSocket::bind("[::1]:0")?, std::net::UdpSocket::bind("[::1]:0")?);
//! // Four workers; at most three of them at once on the long requests.
//! let classes = ClassSockets::new([short.into(), long.into()])?.limit(1, 3);
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             let (mut puller, mut buffer) = (classes.puller(), [0; 2048]);
//!             while let Ok(Some(datagram)) = puller.receive(&mut buffer) {
//!                 answer(&buffer[..datagram.length]);
//!             }
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # How the workers sleep
//!
//! All share one epoll. Each class is *armed* in it once, for one report (`EPOLLONESHOT`): one arrival wakes
//! one worker. A woken worker tries all classes from the first on, takes one request, and rearms the class;
//! if more waits there, that wakes the next worker at once. So a burst wakes a chain of workers as long as
//! the burst, a single request one. A class at its limit is not armed, or it would forever wake workers that
//! may not take from it; the worker that next leaves the class arms it ([`Gate`] holds that debt, checked by
//! loom).
//! - **L1** At every moment each class is armed, or owed by its gate, or in the hands of a worker that is awake and
//! - **L1** At every moment each class is armed, or owed by its gate, or held by an awake worker that settles
//!   it before it returns from a pull: nothing waits while a worker sleeps that may take it.
//! - **L2** A class is never held by more workers than its limit.
//! - **L4** [`ClassSockets::stop`] wakes all sleepers and stays in force.

mod puller;

pub use puller::{Connection, Datagram, Puller};

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_sync::Gate;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::socket_acceptconn;

/// The maximum number of classes.
pub const MAX_CLASSES: usize = 64;

/// The epoll key of the stop event.
const BELL: u64 = u64::MAX;

/// The sockets of the classes, most urgent first, and how many workers may hold requests of each.
#[derive(Debug)]
pub struct ClassSockets {
    classes: Vec<Class>,
    epoll: OwnedFd,
    bell: OwnedFd,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Class {
    socket: OwnedFd,
    gate: Gate,
}

impl ClassSockets {
    /// Takes ownership of the sockets: datagram, or listening. Without limits, which is work-conserving: no
    /// worker sleeps while anything waits. A listening socket becomes non-blocking, also for other processes
    /// that have it.
    ///
    /// # Errors
    /// If there is none or there are more than [`MAX_CLASSES`], or the system's.
    pub fn new(sockets: impl IntoIterator<Item = OwnedFd>) -> io::Result<Self> {
        let class = |socket| Class { socket, gate: Gate::new(u32::MAX) };
        let classes: Vec<Class> = sockets.into_iter().map(class).collect();
        if !(1..=MAX_CLASSES).contains(&classes.len()) {
            let text = format!("{} classes: there can be 1 to {MAX_CLASSES}", classes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Signalled once and never reset: it stays ready, and each sleeper that it wakes wakes the next.
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        for (key, class) in (0..).zip(&classes) {
            if socket_acceptconn(&class.socket)? {
                rustix::io::ioctl_fionbio(&class.socket, true)?;
            }
            epoll::add(&epoll, &class.socket, EventData::new_u64(key), ARMED)?;
        }
        Ok(Self { classes, epoll, bell, stopped: AtomicBool::new(false) })
    }

    /// Limits requests of `class` to `workers` workers at a time; 0 counts as 1. The others sleep if nothing
    /// waits in a class open to them, so they are free for what arrives there. Choose limits whose sum over
    /// the lower classes is below the number of workers.
    ///
    /// # Panics
    /// If there is no such class.
    #[must_use]
    pub fn limit(mut self, class: usize, workers: u32) -> Self {
        self.classes[class].gate = Gate::new(workers);
        self
    }

    /// Returns a puller for one worker.
    #[must_use]
    pub fn puller(&self) -> Puller<'_> {
        Puller::new(self)
    }

    /// Returns the number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Returns the socket of `class`, to answer from or to hand to a policy.
    ///
    /// # Panics
    /// If there is no such class.
    #[must_use]
    pub fn socket(&self, class: usize) -> BorrowedFd<'_> {
        self.classes[class].socket.as_fd()
    }

    /// Returns how many workers hold requests of `class` now; a hint.
    ///
    /// # Panics
    /// If there is no such class.
    #[must_use]
    pub fn busy(&self, class: usize) -> u32 {
        self.classes[class].gate.inside()
    }

    /// Ends all pulling: sleeping workers wake, busy workers see it at their next pull.
    ///
    /// # Errors
    /// The system's.
    pub fn stop(&self) -> io::Result<()> {
        self.stopped.store(true, Ordering::Release);
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).map(drop).map_err(Into::into)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Arms a class. It reports at once if something waits there.
    fn arm(&self, class: usize) {
        let key = EventData::new_u64(class as u64);
        let armed = epoll::modify(&self.epoll, &self.classes[class].socket, key, ARMED);
        // It allocates nothing, and both descriptors are ours and registered.
        armed.expect("a registered socket can be armed");
    }
}

const ARMED: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
