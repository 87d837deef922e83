//! The key-value server: one set of handlers, and one file for each system that runs them. A web server and
//! an echo server share the event-driven systems.
//!
//! # Invariants
//!
//! - **I1** Every system runs the same handler code on the same store; only scheduling differs.
//! - **I2** Whatever a client sends, the error goes to that client and the server lives (`tests/server/faults.rs`,
//!   `tests/server/hostile.rs`).
//! - **I3** Every queue is bounded and every overflow is counted: connections, datagrams in flight, bytes held
//!   ([`ClientLimits`], [`Limit`]; `tests/server/limits.rs`, `tests/server/memory.rs`).
//! - **I4** A client's time, memory and places are limited alike on every system; its limit ends only its own
//!   connection.
//! - **I5** A stop answers what has arrived, then ends within a bounded time (`tests/server/signals.rs`).
//!
//! It never runs as a daemon, never listens on another address than it was given, and serves no file outside `--root`.
//!
//! # Modules
//!
//! - `session`, `wire`, `commands`, `memcached`, `datagram`: from request bytes to reply bytes, without sockets or
//!   systems.
//! - `tokio_system`: on tokio.
//! - `blocking`: on anything whose calls block, through the trait `Platform`, which `threads` and
//!   `heddle_system` implement. `open`: what they have open, and how it is shut down.
//! - `limits`: limits of clients' time, memory and places, for all systems.
//! - `evented`: on an event queue, or on one epoll instance per thread; also the web and echo servers.
//!
//! ```no_run
//! use heddle_server::{Options, Server};
//!
//! let server = Server::start(&Options::on_free_ports())?;
//! println!("{}", server.ready_line());
//! server.stop().request();
//! server.wait()?;
//! # Ok::<(), heddle_server::Error>(())
//! ```

mod bind;
mod blocking;
mod commands;
mod connection_guard;
mod counters;
mod datagram;
mod error;
mod evented;
mod heddle_system;
mod item_state;
mod limits;
mod memcached;
mod open;
mod options;
mod service;
mod session;
mod stop;
mod threads;
mod tokio_system;
mod wire;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use error::Error;
pub use heddle::Mechanism;
pub use limits::{ClientLimits, Limit};
pub use options::{Dataset, HeddleOptions, Options, Protocol, System};
pub use stop::Stop;

use bind::Sockets;
use evented::{Plain, Waiting};
use heddle::Runtime;
use heddle_store::{NoSection, Store, is_loaded, load_dataset_after};
use heddle_system::NoPreempt;
use limits::Bounds;
use service::Service;

/// How long clients have after the stop to read their replies.
const DRAIN: Duration = Duration::from_secs(2);
/// Pause after a failed accept, mostly for lack of descriptors: connections need time to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running server.
pub struct Server {
    tcp: Option<SocketAddr>,
    udp: Option<SocketAddr>,
    what: String,
    stop: Stop,
    describe: Option<evented::Describe>,
    bounds: Arc<Bounds>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Server {
    /// Binds the sockets, opens and fills the store, and serves on a new thread.
    ///
    /// # Errors
    /// [`Error`] names what is wrong with the options or the machine.
    pub fn start(options: &Options) -> Result<Server, Error> {
        check(options)?;
        let runtime = match &options.system {
            System::Heddle(heddle) => Some(heddle_system::build(heddle)?),
            _ => None,
        };
        let waiting = Waiting::build(options)?;
        let describe = waiting.as_ref().map(Waiting::describe);
        let sockets = bind::bind(options)?;
        let bounds = Bounds::new(options.clients, options.max_connections);
        let plain = Plain::open(options, &bounds)?;
        let (store, what) = match plain {
            None => {
                let store = open(options)?;
                let what = format!("store={}", store.name());
                (Some(store), what)
            }
            Some(_) => (None, format!("protocol={}", options.protocol.name())),
        };
        let what = format!("{what} system={}", options.system.name());
        let (tcp, udp) = (sockets.tcp.as_ref().map(|s| s.1), sockets.udp.as_ref().map(|s| s.1));
        let (stop, own) = (Stop::default(), options.clone());
        let (server_stop, shared) = (stop.clone(), bounds.clone());
        let thread = thread::Builder::new()
            .name("server".into())
            .spawn(move || {
                serve(
                    &own,
                    store,
                    sockets,
                    &server_stop,
                    Prepared { runtime, waiting, plain, bounds: shared },
                )
            })
            .map_err(|source| Error::Start { what: "a thread", source })?;
        Ok(Server { tcp, udp, what, stop, describe, bounds, thread: Some(thread) })
    }

    /// The TCP address.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// The UDP address.
    pub fn udp(&self) -> Option<SocketAddr> {
        self.udp
    }

    /// Returns a handle that stops the server.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// One line for programs: `ready tcp=127.0.0.1:7379 udp=127.0.0.1:7380 store=memory system=tokio`.
    pub fn ready_line(&self) -> String {
        let mut line = String::from("ready");
        for (name, addr) in [("tcp", self.tcp), ("udp", self.udp)] {
            if let Some(addr) = addr {
                line.push_str(&format!(" {name}={addr}"));
            }
        }
        format!("{line} {}", self.what)
    }

    /// How often clients have hit `limit` so far.
    pub fn hits(&self, limit: Limit) -> u64 {
        self.bounds.hits(limit)
    }

    /// Describes the threads and their queue as `name=value`, separated by spaces; `None` if there is no queue.
    fn summary(&self) -> Option<String> {
        let text = self.describe.as_ref()?();
        Some(text.trim_end().replace(':', "=").replace("\r\n", " "))
    }

    /// Waits until the server ends, which [`Stop::request`] causes.
    ///
    /// # Errors
    /// What went wrong in the server since it started.
    pub fn wait(mut self) -> Result<(), Error> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        let thread = self.thread.take().map(JoinHandle::join);
        thread.unwrap_or(Ok(Ok(()))).unwrap_or(Err(Error::Panicked))
    }
}

/// Serves until SIGINT or SIGTERM (or the end of standard input, if requested), then answers what has
/// arrived, syncs the store and returns. A second signal ends the process at once. Prints
/// [`Server::ready_line`] on standard output and, at the end, statistics of the queue and of the limits that
/// clients hit on standard error.
///
/// # Errors
/// See [`Server::start`] and [`Server::wait`].
pub fn run(options: &Options) -> Result<(), Error> {
    // Installed before the server starts, so that no signal is missed.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|source| Error::Start { what: "the signal handler", source })?;
    let handle = signals.handle();
    let mut server = Server::start(options)?;
    let stop = server.stop();
    let watcher = thread::spawn(move || {
        let mut all = signals.forever();
        if all.next().is_some() {
            stop.request();
        }
        if let Some(again) = all.next() {
            std::process::exit(128 + again);
        }
    });
    if options.until_stdin_closes {
        watch_stdin(server.stop());
    }
    let mut out = std::io::stdout();
    // Standard output may be closed; the server does not depend on it.
    let _ = writeln!(out, "{}", server.ready_line()).and_then(|()| out.flush());
    let result = server.join();
    handle.close();
    let _ = watcher.join();
    if let Some(summary) = server.summary() {
        let _ = writeln!(std::io::stderr(), "served {summary}");
    }
    if let Some(limits) = server.bounds.summary() {
        let _ = writeln!(std::io::stderr(), "limits hit in all: {limits}");
    }
    result
}

/// The thread ends with the process: a read of standard input cannot be interrupted.
fn watch_stdin(stop: Stop) {
    thread::spawn(move || {
        // An error counts as the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.request();
    });
}

fn check(options: &Options) -> Result<(), Error> {
    let (what, number) = match options.system {
        System::Heddle(ref heddle) => ("the number of handlers", Some(heddle.handlers)),
        System::Tokio { workers } => ("the number of workers", workers),
        System::Threads { pool } => ("the number of threads", pool),
        System::Events { threads, .. } | System::Epoll { threads } => {
            ("the number of threads", threads)
        }
    };
    let limits = [
        (what, number),
        ("the most connections", Some(options.max_connections)),
        ("the most datagrams in flight", Some(options.max_in_flight)),
        ("the time for a request", Some(options.clients.request.as_nanos() as usize)),
        ("the idle time", Some(options.clients.idle.as_nanos() as usize)),
        ("the rate of replies", Some(options.clients.reply_rate)),
        ("the time to linger", Some(options.clients.linger.as_nanos() as usize)),
        ("the memory for clients", Some(options.clients.memory)),
        ("the memory of a connection", Some(options.clients.connection_memory)),
        ("the memory of the store", Some(options.clients.store_memory)),
    ];
    if let Some((what, _)) = limits.into_iter().find(|(_, number)| *number == Some(0)) {
        return Err(Error::Zero { what });
    }
    let waits = matches!(options.system, System::Events { .. } | System::Epoll { .. });
    if options.protocol.has_store() || waits {
        return Ok(());
    }
    Err(Error::Protocol { protocol: options.protocol.name(), system: options.system.name() })
}

/// What is built before the handlers run.
struct Prepared {
    runtime: Option<Runtime>,
    waiting: Option<Waiting>,
    plain: Option<Plain>,
    bounds: Arc<Bounds>,
}

fn open(options: &Options) -> Result<Box<dyn Store>, Error> {
    let store = options.store.open_within(options.clients.store_memory)?;
    if let Some(data) = options.dataset {
        let head = match options.protocol {
            Protocol::Memcached => memcached::dataset_header(),
            _ => Vec::new(),
        };
        if !is_loaded(&*store, data.keys, head.len() + data.value_size)? {
            load_dataset_after(&head, &*store, data.keys, data.value_size, &mut |_| ())?;
        }
    }
    Ok(store)
}

fn serve(
    options: &Options,
    store: Option<Box<dyn Store>>,
    sockets: Sockets,
    stop: &Stop,
    on: Prepared,
) -> Result<(), Error> {
    let Some(store) = store else {
        let waiting = on.waiting.expect("other systems serve the store only");
        let plain = on.plain.expect("a protocol has a store or needs none");
        return plain.run(waiting, sockets, options.max_connections, stop);
    };
    if let (System::Heddle(heddle), Some(runtime)) = (&options.system, on.runtime) {
        let service = Service::new(store, NoPreempt, options, &on.bounds);
        heddle_system::run(service.clone(), sockets, stop, &runtime, heddle)?;
        return Ok(service.store.store().sync()?);
    }
    let service = Service::new(store, NoSection, options, &on.bounds);
    let own = service.clone();
    match (&options.system, on.waiting) {
        (_, Some(waiting)) => {
            service.describe_runtime(waiting.describe());
            waiting.run(evented::Kv(service), sockets, options.max_connections, stop)?;
        }
        (System::Tokio { workers }, _) => tokio_system::run(service, sockets, stop, *workers)?,
        (System::Threads { pool }, _) => {
            threads::run(service, sockets, stop, *pool, options.max_in_flight)?;
        }
        _ => unreachable!("the backend is built before the server starts"),
    }
    Ok(own.store.store().sync()?)
}
