//! Servers whose threads wait for events: [`Shared`] on one queue with a policy, or each on an epoll
//! instance of its own, which is what they are compared with.
//!
//! - `backend`: on what they wait. `server`: listener, threads, the end. `connection`: one of them, never blocking.
//!   `table`: all of them.
//! - `protocol`: what they speak: `kv`, `http` or `echo`.

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

/// Tells of the threads and their queue, in lines as INFO has them.
pub(super) type Describe = Box<dyn Fn() -> String + Send + Sync>;

/// What a server's threads wait on. Made before anything else is, since a policy may be wrong.
pub(super) enum Waiting {
    Shared(Arc<Shared>, usize),
    PerThread(Arc<PerThread>, usize),
}

impl Waiting {
    /// For a system that waits for events; none for others.
    pub(super) fn build(options: &Options) -> Result<Option<Waiting>, Error> {
        let count = |asked: &Option<usize>| asked.unwrap_or_else(default_threads);
        match &options.system {
            System::Events { policy, threads } => {
                let threads = count(threads);
                // Listener and datagrams beside the connections.
                let capacity = options.max_connections + threads + 16;
                let mut builder = EventQueue::builder().capacity(capacity);
                if let Some(policy) = policy {
                    builder = builder.policy(policy);
                }
                Ok(Some(Waiting::Shared(Arc::new(Shared::new(builder.build()?)), threads)))
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

    /// What tells of it.
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

/// What is served without a store.
pub(super) enum Plain {
    Http(Http),
    Echo(Echo),
}

impl Plain {
    /// For the protocols that have no store; none for RESP.
    pub(super) fn open(options: &Options, bounds: &Arc<Bounds>) -> Result<Option<Plain>, Error> {
        let most = options.max_connections;
        match &options.protocol {
            Protocol::Resp => Ok(None),
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
