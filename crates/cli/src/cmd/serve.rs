//! `heddle serve`: the key-value server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use heddle_bench::server::{self, Dataset, Options, System};
use heddle_bench::store::StoreConfig;

use crate::exit::{Outcome, Usage};

/// Options of `heddle serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle serve --keys 100000
  heddle serve --system threads --store rocksdb --dir /var/tmp/kv --tcp 127.0.0.1:6379
  redis-cli -p 7379 get key:000000000042

When it is ready it prints one line: ready tcp=ADDRESS udp=ADDRESS store=NAME system=NAME.
Ctrl-C answers what has arrived and ends with exit code 0.")]
pub struct Args {
    /// On what the handlers run.
    #[arg(long, value_enum, default_value_t = SystemName::Tokio)]
    system: SystemName,
    /// Worker threads of tokio, or threads of the pool [default: by the number of CPUs].
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
        let cannot = |e| Usage(format!("cannot run on CPUs {:?}: {e}", args.cpus));
        heddle_sys::thread::pin(&args.cpus).map_err(cannot)?;
    }
    server::run(&options(args)?)?;
    Ok(Outcome::Done)
}

fn options(args: Args) -> anyhow::Result<Options> {
    let dataset = args.keys.map(|keys| Dataset { keys, value_size: args.value_size });
    let store = match (args.store, args.dir) {
        (StoreName::Memory, _) => StoreConfig::Memory,
        (StoreName::Rocksdb, Some(dir)) => StoreConfig::RocksDb { dir, sync: args.sync },
        (StoreName::Rocksdb, None) => unreachable!("clap requires --dir"),
    };
    let system = match args.system {
        SystemName::Tokio => System::Tokio { workers: args.workers },
        SystemName::Threads => System::Threads { pool: args.workers },
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
