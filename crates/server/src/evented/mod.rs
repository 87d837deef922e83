//! Servers whose threads wait for events: [`Shared`] on one queue with a policy or, as the baseline, each on
//! its own epoll instance.
//!
//! - `backend`: what they wait on. `server`: listener, threads, shutdown. `connection`: one connection, which
//!   never blocks. `table`: all connections.
//! - `protocol`: `kv`, `http` or `echo`.

mod backend;
mod connection;
mod echo;
mod http;
mod kv;
mod protocol;
mod server;
mod table;

use std::sync::Arc;
use std::thread;

use heddle::events::EventQueue;

use super::bind::Sockets;
use super::limits::Bounds;
use super::{Error, Options, Protocol, Stop, System};
use backend::{Backend, PerThread, Shared};
use echo::Echo;
use http::Http;
pub(super) use kv::Kv;
use server::EventServer;

/// Describes the threads and their queue, as lines of INFO.
pub(super) type Describe = Box<dyn Fn() -> String + Send + Sync>;

/// What a server's threads wait on. Built before anything else, since the policy may be invalid.
pub(super) enum Waiting {
    Shared(Arc<Shared>, usize),
    PerThread(Arc<PerThread>, usize),
}

impl Waiting {
    /// Builds it for a system that waits for events; `None` for others.
    pub(super) fn build(options: &Options) -> Result<Option<Waiting>, Error> {
        let count = |asked: &Option<usize>| asked.unwrap_or_else(default_threads);
        match &options.system {
            System::Events { policy, threads } => {
                let threads = count(threads);
                // Listener and datagrams, in addition to the connections.
                let capacity = options.max_connections + threads + 16;
                let mut builder = EventQueue::builder().capacity(capacity);
                if let Some(policy) = policy {
                    builder = builder.policy(policy);
                }
                Ok(Some(Waiting::Shared(Arc::new(Shared::new(builder.build()?, threads)), threads)))
            }
            System::Epoll { threads } => {
                let threads = count(threads);
                let made = PerThread::new(threads);
                let cannot = |source| Error::Start { what: "epoll instances", source };
                Ok(Some(Waiting::PerThread(Arc::new(made.map_err(cannot)?), threads)))
            }
            _ => Ok(None),
        }
    }

    /// Returns the function that describes it.
    pub(super) fn describe(&self) -> Describe {
        match self {
            Waiting::Shared(shared, _) => {
                let shared = shared.clone();
                Box::new(move || shared.describe())
            }
            Waiting::PerThread(all, _) => {
                let all = all.clone();
                Box::new(move || all.describe())
            }
        }
    }

    /// Serves `protocol` until `stop`.
    pub(super) fn run<P: protocol::Protocol>(
        self,
        protocol: P,
        sockets: Sockets,
        max_connections: usize,
        stop: &Stop,
    ) -> Result<(), Error> {
        match self {
            Waiting::Shared(backend, threads) => {
                EventServer::run(protocol, backend, sockets, threads, max_connections, stop)
            }
            Waiting::PerThread(backend, threads) => {
                EventServer::run(protocol, backend, sockets, threads, max_connections, stop)
            }
        }
    }
}

/// The protocols that need no store.
pub(super) enum Plain {
    Http(Http),
    Echo(Echo),
}

impl Plain {
    /// Opens a protocol without a store; `None` for a protocol with one.
    pub(super) fn open(options: &Options, bounds: &Arc<Bounds>) -> Result<Option<Plain>, Error> {
        let most = options.max_connections;
        match &options.protocol {
            Protocol::Resp | Protocol::Memcached => Ok(None),
            Protocol::Http { root } => {
                let cannot = |source| Error::Root { root: root.clone(), source };
                Ok(Some(Plain::Http(Http::new(root, most, bounds).map_err(cannot)?)))
            }
            Protocol::Echo => Ok(Some(Plain::Echo(Echo::new(most, bounds)))),
        }
    }

    /// Serves until `stop`.
    pub(super) fn run(
        self,
        waiting: Waiting,
        sockets: Sockets,
        max_connections: usize,
        stop: &Stop,
    ) -> Result<(), Error> {
        match self {
            Plain::Http(http) => waiting.run(http, sockets, max_connections, stop),
            Plain::Echo(echo) => waiting.run(echo, sockets, max_connections, stop),
        }
    }
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
