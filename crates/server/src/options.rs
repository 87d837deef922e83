//! Options of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use heddle::Mechanism;

use super::limits::ClientLimits;
use heddle_proto::resp::Limits;
use heddle_store::StoreConfig;

/// The system that runs the handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// tokio's multi-threaded runtime: one task per connection and one per datagram.
    Tokio {
        /// Worker threads; default: the number of CPUs.
        workers: Option<usize>,
    },
    /// Heddle's threads: one per connection, and some that receive and answer datagrams.
    Heddle(HeddleOptions),
    /// Kernel threads: one per connection, and a pool for datagrams.
    Threads {
        /// Threads of the pool; four times default: the number of CPUs.
        pool: Option<usize>,
    },
    /// Threads that share one event queue, whose policy assigns events to them.
    Events {
        /// The policy with its parameters; default: the queue's.
        policy: Option<String>,
        /// Threads; default: the number of CPUs.
        threads: Option<usize>,
    },
    /// Threads with one epoll instance each; connections are dealt to them in turn.
    Epoll {
        /// Threads; default: the number of CPUs.
        threads: Option<usize>,
    },
}

/// The protocol on connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Redis' protocol, with the store; and the load generator's datagrams.
    #[default]
    Resp,
    /// memcached's text protocol, with the store; on datagrams too, behind memcached's frame header. Items have
    /// headers in the store, so that a store belongs to one protocol.
    Memcached,
    /// HTTP/1.1: the files beneath a directory. On [`System::Events`] and [`System::Epoll`] only.
    Http {
        /// The directory.
        root: PathBuf,
    },
    /// Frames of four bytes of length in network order and that many bytes; each is sent back unchanged. On
    /// [`System::Events`] and [`System::Epoll`] only.
    Echo,
}

impl Protocol {
    /// Whether it serves the store; such a protocol is spoken on every system.
    pub fn has_store(&self) -> bool {
        matches!(self, Protocol::Resp | Protocol::Memcached)
    }

    /// The name by which a user chooses it.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Resp => "resp",
            Protocol::Memcached => "memcached",
            Protocol::Http { .. } => "http",
            Protocol::Echo => "echo",
        }
    }
}

impl System {
    /// The name by which a user chooses it.
    pub fn name(&self) -> &'static str {
        match self {
            System::Heddle(_) => "heddle",
            System::Tokio { .. } => "tokio",
            System::Threads { .. } => "threads",
            System::Events { .. } => "events",
            System::Epoll { .. } => "epoll",
        }
    }
}

/// Options of Heddle's runtime. An absent option is left to the environment and the runtime's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeddleOptions {
    /// The policy with its parameters.
    pub policy: Option<String>,
    /// How tasks are preempted.
    pub mechanism: Option<Mechanism>,
    /// Workers, each pinned to one of the CPUs that the process may use; default: one per CPU.
    pub workers: Option<usize>,
    /// The CPU of a dispatcher, which hands out the tasks of a central policy.
    pub dispatcher: Option<u32>,
    /// Tasks that receive datagrams; also the most datagrams in flight.
    pub handlers: usize,
}

impl Default for HeddleOptions {
    fn default() -> HeddleOptions {
        HeddleOptions {
            policy: None,
            mechanism: None,
            workers: None,
            dispatcher: None,
            handlers: 128,
        }
    }
}

/// Data to write before the server is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// How many keys.
    pub keys: u64,
    /// Bytes of each value.
    pub value_size: usize,
}

/// All options of [`super::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where to listen for connections; port 0 takes a free one.
    pub tcp: Option<SocketAddr>,
    /// Where to listen for datagrams: the load generator's, or memcached's; port 0 takes a free one.
    pub udp: Option<SocketAddr>,
    /// The protocol on connections.
    pub protocol: Protocol,
    /// The store.
    pub store: StoreConfig,
    /// The system that runs the handlers.
    pub system: System,
    /// Data to write first, unless a store on disk has it already.
    pub dataset: Option<Dataset>,
    /// Limits of a request.
    pub limits: Limits,
    /// Limits of clients.
    pub clients: ClientLimits,
    /// Most connections at a time; further ones get an error and are closed.
    pub max_connections: usize,
    /// Most datagrams received and not yet answered; more are dropped and counted.
    pub max_in_flight: usize,
    /// Stop when standard input closes: a server started by a bench never outlives the bench.
    pub until_stdin_closes: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 7379))),
            udp: Some(SocketAddr::from(([127, 0, 0, 1], 7380))),
            protocol: Protocol::Resp,
            store: StoreConfig::Memory,
            system: System::Tokio { workers: None },
            dataset: None,
            limits: Limits::default(),
            clients: ClientLimits::default(),
            max_connections: 4096,
            max_in_flight: 16_384,
            until_stdin_closes: false,
        }
    }
}

impl Options {
    /// Both sockets on free ports of the loopback interface, for tests and benches.
    pub fn on_free_ports() -> Options {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Options { tcp: Some(any), udp: Some(any), ..Options::default() }
    }
}
