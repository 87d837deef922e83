//! `heddle kv serve`: the key-value server; on event queues also a web server and an echo server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use heddle_core::Ns;
use heddle_server::{ClientLimits, Dataset, HeddleOptions, Mechanism, Options, Protocol, System};
use heddle_store::StoreConfig;

use crate::exit::{Outcome, Usage};

/// Options of `heddle kv serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle kv serve --keys 100000 --policy two-queue:quantum=100us
  heddle kv serve --keys 100000 --policy shinjuku:quantum=100us --dispatcher 0
  heddle kv serve --system threads --store rocksdb --dir /var/tmp/kv --tcp 127.0.0.1:6379
  redis-cli -p 7379 get key:000000000042
  heddle kv serve --protocol memcached --tcp 127.0.0.1:11211 --udp 127.0.0.1:11211
  memccat --servers=127.0.0.1:11211 key
  heddle kv serve --system events --policy hybrid --threads 4 --keys 100000
  heddle kv serve --protocol http --root docs --tcp 127.0.0.1:8080 --threads 4
  curl http://127.0.0.1:8080/events.md

When ready, it prints one line: ready tcp=ADDRESS udp=ADDRESS store=NAME system=NAME; for http and
echo ready tcp=ADDRESS protocol=NAME system=NAME. Ctrl-C answers what has arrived and exits with
code 0. All systems then report on standard error which limits clients hit, and events and epoll
what their queues did.")]
pub struct Args {
    /// The protocol: resp and memcached are the key-value server; http and echo require the system events or epoll.
    #[arg(long, value_enum, default_value_t = ProtocolName::Resp)]
    protocol: ProtocolName,
    /// The directory to serve with --protocol http.
    #[arg(long, required_if_eq("protocol", "http"))]
    root: Option<PathBuf>,
    /// What the handlers run on [default: heddle; for http and echo, events].
    #[arg(long, value_enum)]
    system: Option<SystemName>,
    /// The policy of heddle or events, with parameters (heddle policies lists them) [default: HEDDLE_POLICY, or
    /// work-stealing; for events, hybrid].
    #[arg(long)]
    policy: Option<String>,
    /// How Heddle preempts: none, signal, probe, uintr or uintr-timer [default: HEDDLE_MECHANISM, or the best here].
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// The CPU of a dispatcher, which hands the tasks of a central policy (fifo, shinjuku) to Heddle's workers on
    /// the other CPUs [default: HEDDLE_DISPATCHER, or none: workers take tasks themselves].
    #[arg(long, value_name = "CPU")]
    dispatcher: Option<u32>,
    /// Heddle's tasks for datagrams, and so the maximum number of datagrams in flight [default: 128].
    #[arg(long)]
    handlers: Option<usize>,
    /// Heddle's workers, one per CPU; worker threads of tokio, events or epoll; or threads of the pool
    /// [default: from the number of CPUs].
    #[arg(long, visible_alias = "threads")]
    workers: Option<usize>,
    /// The CPUs to run on [default: all].
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<u32>,
    /// The store.
    #[arg(long, value_enum, default_value_t = StoreName::Memory)]
    store: StoreName,
    /// RocksDB's directory.
    #[arg(long, required_if_eq("store", "rocksdb"))]
    dir: Option<PathBuf>,
    /// Wait for the disk on every write.
    #[arg(long)]
    sync: bool,
    /// Write this many keys before serving; a directory that has them keeps them.
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100)]
    value_size: usize,
    /// Where to serve the protocol: an address, or none.
    #[arg(long, default_value = "127.0.0.1:7379")]
    tcp: Address,
    /// Where to answer datagrams (the load generator's; for memcached, its own): an address, or none
    /// [default: 127.0.0.1:7380; for memcached, http and echo, none].
    #[arg(long)]
    udp: Option<Address>,
    /// The maximum number of connections; further ones get an error and are closed.
    #[arg(long, default_value_t = 4096)]
    max_connections: usize,
    #[command(flatten)]
    clients: Clients,
    /// Stop when standard input closes.
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Limits on clients; the server reports on standard error which of them were hit.
#[derive(clap::Args)]
struct Clients {
    /// How long a request may take to arrive, from its first byte; then it is refused (an error, HTTP: 408).
    #[arg(long, value_name = "TIME", default_value = "30s")]
    request_timeout: Ns,
    /// How long a connection may be idle: between two requests, or because the client does not read its replies.
    #[arg(long, value_name = "TIME", default_value = "300s")]
    idle_timeout: Ns,
    /// Bytes of replies per second that a client must read: a write may take the idle timeout, plus a second
    /// for each of these.
    #[arg(long, value_name = "BYTES", default_value = "16K")]
    reply_rate: Size,
    /// How long the server waits for the client to close after its last reply.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    linger_timeout: Ns,
    /// Bytes of requests and replies that all connections together may hold beyond 16 KiB each: 1000000, 512M, 2G.
    #[arg(long, value_name = "BYTES", default_value = "512M")]
    memory: Size,
    /// Bytes of requests and replies that a connection may hold.
    #[arg(long, value_name = "BYTES", default_value = "128M")]
    connection_memory: Size,
    /// Bytes of keys and values that --store memory may hold, counting 192 more per key; beyond that writes
    /// fail (RESP: OOM, memcached: SERVER_ERROR). RocksDB has no such limit: it may fill the disk.
    #[arg(long, value_name = "BYTES", default_value = "4G")]
    store_memory: Size,
}

impl Clients {
    fn limits(&self) -> ClientLimits {
        let duration = |time: Ns| Duration::from_nanos(time.0);
        ClientLimits {
            request: duration(self.request_timeout),
            idle: duration(self.idle_timeout),
            reply_rate: self.reply_rate.0,
            linger: duration(self.linger_timeout),
            memory: self.memory.0,
            connection_memory: self.connection_memory.0,
            store_memory: self.store_memory.0,
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
struct Size(usize);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let units = [("K", 10), ("M", 20), ("G", 30)];
        let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
        let (digits, shift) = unit.unwrap_or((text, 0));
        let number: Option<usize> = digits.parse().ok();
        let bytes = number.and_then(|number| number.checked_mul(1 << shift));
        bytes
            .map(Size)
            .ok_or_else(|| "expected a number of bytes, such as 1000000, 512M or 2G".into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SystemName {
    /// Heddle: a task for each connection, a set of tasks for datagrams.
    Heddle,
    /// tokio's multi-threaded runtime.
    Tokio,
    /// A thread for each connection, a pool for datagrams.
    Threads,
    /// Threads that share one event queue.
    Events,
    /// Threads with one epoll instance each; connections are assigned in turn.
    Epoll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    /// Redis' protocol, on the store.
    Resp,
    /// memcached's text protocol, on the store: get, gets, gat, gats, set, add, replace, append, prepend, cas, incr,
    /// decr, touch, delete, flush_all, stats, version, verbosity and quit; neither meta commands nor the binary
    /// protocol. A full store refuses writes, as memcached -M. A directory of RocksDB serves one protocol.
    Memcached,
    /// HTTP/1.1, the files under --root.
    Http,
    /// Frames of a four-byte length (network order) and that many bytes, sent back.
    Echo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StoreName {
    /// An ordered map in memory.
    Memory,
    /// RocksDB in --dir.
    Rocksdb,
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
struct Address(Option<SocketAddr>);

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if text == "none" {
            return Ok(Address(None));
        }
        let addr = text.parse();
        addr.map(|a| Address(Some(a))).map_err(|_| "expected ADDRESS:PORT or none".into())
    }
}

/// Serves until asked to stop.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.cpus.is_empty() {
        let cannot = |e| {
            let usable = heddle_sys::thread::affinity().unwrap_or_default();
            Usage(format!("cannot run on CPUs {:?} ({e}); usable are {usable:?}", args.cpus))
        };
        heddle_sys::thread::pin(&args.cpus).map_err(cannot)?;
    }
    heddle_server::run(&options(args)?).map_err(into_error)?;
    Ok(Outcome::Done)
}

/// Converts errors in what was typed, such as an unknown policy, to wrong usage.
fn into_error(error: heddle_server::Error) -> anyhow::Error {
    match error {
        heddle_server::Error::Runtime(why) => Usage(why.to_string()).into(),
        heddle_server::Error::Events(why) => Usage(why.to_string()).into(),
        why @ (heddle_server::Error::Protocol { .. } | heddle_server::Error::Root { .. }) => {
            Usage(why.to_string()).into()
        }
        other => other.into(),
    }
}

fn options(args: Args) -> anyhow::Result<Options> {
    let system = system(&args)?;
    let dataset = args.keys.map(|keys| Dataset { keys, value_size: args.value_size });
    let store = match (args.store, args.dir) {
        (StoreName::Memory, _) => StoreConfig::Memory,
        (StoreName::Rocksdb, Some(dir)) => StoreConfig::RocksDb { dir, sync: args.sync },
        (StoreName::Rocksdb, None) => unreachable!("clap requires --dir"),
    };
    let defaults = Options::default();
    Ok(Options {
        tcp: args.tcp.0,
        udp: match (args.udp, args.protocol) {
            (Some(given), _) => given.0,
            (None, ProtocolName::Resp) => defaults.udp,
            (None, _) => None,
        },
        protocol: match args.protocol {
            ProtocolName::Resp => Protocol::Resp,
            ProtocolName::Memcached => Protocol::Memcached,
            ProtocolName::Http => Protocol::Http { root: args.root.unwrap_or_default() },
            ProtocolName::Echo => Protocol::Echo,
        },
        max_connections: args.max_connections,
        clients: args.clients.limits(),
        store,
        system,
        dataset,
        until_stdin_closes: args.until_stdin_closes,
        ..defaults
    })
}

fn system(args: &Args) -> Result<System, Usage> {
    let workers = args.workers;
    let default = match args.protocol {
        ProtocolName::Resp | ProtocolName::Memcached => SystemName::Heddle,
        _ => SystemName::Events,
    };
    let system = match args.system.unwrap_or(default) {
        SystemName::Heddle => return Ok(System::Heddle(heddle(args))),
        SystemName::Tokio => System::Tokio { workers },
        SystemName::Threads => System::Threads { pool: workers },
        SystemName::Events => System::Events { policy: args.policy.clone(), threads: workers },
        SystemName::Epoll => System::Epoll { threads: workers },
    };
    let has_policy = matches!(system, System::Events { .. });
    let given = [
        ("--policy", args.policy.is_some() && !has_policy),
        ("--mechanism", args.mechanism.is_some()),
        ("--dispatcher", args.dispatcher.is_some()),
        ("--handlers", args.handlers.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((what, _)) => {
            let name = system.name();
            Err(Usage(format!("{name} has no {what}; only --system heddle has")))
        }
        None => Ok(system),
    }
}

fn heddle(args: &Args) -> HeddleOptions {
    let default = HeddleOptions::default();
    HeddleOptions {
        policy: args.policy.clone(),
        mechanism: args.mechanism,
        workers: args.workers,
        dispatcher: args.dispatcher,
        handlers: args.handlers.unwrap_or(default.handlers),
    }
}
