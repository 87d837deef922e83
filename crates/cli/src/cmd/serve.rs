//! `heddle serve`: the key-value server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use heddle_bench::server::{self, Dataset, HeddleOptions, Mechanism, Options, System};
use heddle_bench::store::StoreConfig;

use crate::exit::{Outcome, Usage};

/// Options of `heddle serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle serve --keys 100000 --policy two-queue:quantum=100us
  heddle serve --system threads --store rocksdb --dir /var/tmp/kv --tcp 127.0.0.1:6379
  redis-cli -p 7379 get key:000000000042

When it is ready it prints one line: ready tcp=ADDRESS udp=ADDRESS store=NAME system=NAME.
Ctrl-C answers what has arrived and ends with exit code 0.")]
pub struct Args {
    /// On what the handlers run.
    #[arg(long, value_enum, default_value_t = SystemName::Heddle)]
    system: SystemName,
    /// Heddle's policy with its parameters (heddle policies lists them) [default: as HEDDLE_POLICY says,
    /// or work-stealing].
    #[arg(long)]
    policy: Option<String>,
    /// How Heddle preempts: none, or signal [default: as HEDDLE_MECHANISM says, or signal].
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// Heddle's tasks that receive and answer datagrams, and so its most datagrams in flight [default: 128].
    #[arg(long)]
    handlers: Option<usize>,
    /// Heddle's workers, one a CPU; worker threads of tokio; or threads of the pool [default: by the number
    /// of CPUs].
    #[arg(long)]
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
    /// Wait for the disk at every write.
    #[arg(long)]
    sync: bool,
    /// Write so many keys before serving; a directory that has them keeps them.
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes of each of their values.
    #[arg(long, default_value_t = 100)]
    value_size: usize,
    /// Where to speak RESP: an address, or none.
    #[arg(long, default_value = "127.0.0.1:7379")]
    tcp: Address,
    /// Where to answer datagrams: an address, or none.
    #[arg(long, default_value = "127.0.0.1:7380")]
    udp: Address,
    /// Stop when standard input ends.
    #[arg(long)]
    until_stdin_closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SystemName {
    /// Heddle: a task for each connection, a set of tasks for datagrams.
    Heddle,
    /// tokio's multi-threaded runtime.
    Tokio,
    /// A thread for each connection, a pool for datagrams.
    Threads,
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
        addr.map(|a| Address(Some(a))).map_err(|_| "not address:port, nor none".into())
    }
}

/// Serves until told to stop.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.cpus.is_empty() {
        let cannot = |e| {
            let usable = heddle_sys::thread::affinity().unwrap_or_default();
            Usage(format!("cannot run on CPUs {:?} ({e}); usable are {usable:?}", args.cpus))
        };
        heddle_sys::thread::pin(&args.cpus).map_err(cannot)?;
    }
    server::run(&options(args)?).map_err(explain)?;
    Ok(Outcome::Done)
}

/// A policy that does not exist is an error in what was typed.
fn explain(error: server::Error) -> anyhow::Error {
    match error {
        server::Error::Runtime(why) => Usage(why.to_string()).into(),
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
    Ok(Options {
        tcp: args.tcp.0,
        udp: args.udp.0,
        store,
        system,
        dataset,
        until_stdin_closes: args.until_stdin_closes,
        ..Options::default()
    })
}

fn system(args: &Args) -> Result<System, Usage> {
    let workers = args.workers;
    let system = match args.system {
        SystemName::Heddle => return Ok(System::Heddle(heddle(args))),
        SystemName::Tokio => System::Tokio { workers },
        SystemName::Threads => System::Threads { pool: workers },
    };
    if args.policy.is_none() && args.mechanism.is_none() && args.handlers.is_none() {
        return Ok(system);
    }
    let name = system.name();
    Err(Usage(format!(
        "{name} has no --policy, --mechanism or --handlers; only --system heddle has"
    )))
}

fn heddle(args: &Args) -> HeddleOptions {
    let default = HeddleOptions::default();
    HeddleOptions {
        policy: args.policy.clone(),
        mechanism: args.mechanism,
        workers: args.workers,
        handlers: args.handlers.unwrap_or(default.handlers),
    }
}
