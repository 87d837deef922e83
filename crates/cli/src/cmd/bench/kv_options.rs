//! What `heddle bench kv` and `heddle demo` share: options, and running a comparison.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use heddle_bench::kv::{self, Cpus, KvError, KvOptions, Net, ScanTime, StoreKind, System, Verdict};
use heddle_load::Mix;
use heddle_metrics::Progress;
use heddle_netns::Pair;

use crate::cmd::kv::load::{ns, seconds};
use crate::exit::{Outcome, Usage};

/// Which store the servers open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreName {
    /// RocksDB if this program was built with it, else the in-memory store.
    Auto,
    /// An ordered map in memory.
    Memory,
    /// RocksDB.
    Rocksdb,
}

impl StoreName {
    fn kind(self) -> StoreKind {
        match self {
            StoreName::Auto => StoreKind::best(),
            StoreName::Memory => StoreKind::Memory,
            StoreName::Rocksdb => StoreKind::RocksDb,
        }
    }
}

/// The options of a comparison.
#[derive(clap::Args)]
pub struct KvArgs {
    /// A system to compare (repeatable): heddle and a policy, tokio, or threads
    /// [default: heddle two-queue, heddle fifo, tokio, threads].
    #[arg(long = "system", value_name = "SYSTEM")]
    systems: Vec<System>,
    /// Which store the servers open.
    #[arg(long, value_enum, default_value_t = StoreName::Auto)]
    store: StoreName,
    /// Operations and their weights, or a preset (heddle kv load --help lists the presets).
    #[arg(long, default_value = "get=95,scan=5")]
    mix: Mix,
    /// The minimum duration of a SCAN, as a time (4ms) or in GETs, measured on this machine (1000x)
    /// [default: 1000x, or as in the preset's paper].
    #[arg(long, value_name = "TIME")]
    scan: Option<ScanTime>,
    /// Keys in the dataset.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100)]
    value_size: u16,
    /// The server's CPUs [default: all but the last].
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<u32>,
    /// The seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Networks to compare (comma-separated): kernel, xdp. Server and load are then in two network
    /// namespaces, which takes root; xdp is measured of heddle alone [default: loopback].
    #[arg(long = "net", value_delimiter = ',', value_name = "NETS")]
    nets: Vec<Net>,
}

/// How much to measure.
pub struct Extent {
    /// Per cent of saturation.
    pub loads: Vec<f64>,
    /// Rounds.
    pub rounds: u32,
    /// Seconds per point.
    pub seconds: f64,
}

/// Parses an entry of `--loads`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim();
    number.parse().map_err(|_| "expected a percentage of saturation, such as 50".to_owned())
}

/// Parses `--seconds`.
pub fn point_seconds(text: &str) -> Result<f64, String> {
    seconds(text)
}

/// Returns the comparison that the arguments describe.
pub fn options(args: KvArgs, extent: Extent) -> anyhow::Result<KvOptions> {
    let allowed = heddle_sys::thread::affinity()?;
    let server = (!args.cpus.is_empty()).then_some(args.cpus.as_slice());
    let store = args.store.kind();
    if store == StoreKind::RocksDb && StoreKind::best() != store {
        let why = "this program was built without RocksDB; build with --features rocksdb, or use --store memory";
        return Err(Usage(why.into()).into());
    }
    let paper = args.mix.scan_service().map(ScanTime::Time);
    let scan = args.scan.or(paper).unwrap_or(ScanTime::Gets(1000));
    let systems = if args.systems.is_empty() { System::defaults() } else { args.systems };
    let (systems, pair) = match &args.nets[..] {
        [] => (systems, None),
        nets => (System::on(&systems, nets), Some(Arc::new(namespaces()?))),
    };
    let options = KvOptions {
        // This very program, even if its file is replaced in the meantime.
        program: PathBuf::from("/proc/self/exe"),
        systems,
        store,
        mix: args.mix,
        scan,
        loads: extent.loads.iter().map(|percent| percent / 100.0).collect(),
        rounds: extent.rounds,
        duration: ns(extent.seconds),
        keys: args.keys.into(),
        value_len: args.value_size.into(),
        seed: args.seed,
        cpus: Cpus::divide(&allowed, server).map_err(Usage)?,
        pair,
    };
    options.check().map_err(Usage)?;
    Ok(options)
}

/// Creates the namespaces of server and load, with a queue for each lane.
fn namespaces() -> anyhow::Result<Pair> {
    if let Some(why) = heddle_netns::missing_privilege() {
        return Err(Usage(format!("--net {why}: it makes network namespaces")).into());
    }
    Ok(Pair::new(1)?)
}

/// Announces the comparison, and runs it.
pub fn compare(title: &str, options: &KvOptions, stop: &AtomicBool) -> anyhow::Result<Verdict> {
    let mut stderr = std::io::stderr();
    for line in kv::conditions(options) {
        let _ = writeln!(stderr, "{line}");
    }
    let expected = options.expected();
    let _ = writeln!(stderr, "This takes about {} s; Ctrl-C ends it early.", expected.as_secs());
    if cfg!(debug_assertions) {
        let _ = writeln!(stderr, "A debug build: do not quote these figures.");
    }
    let mut progress = Progress::new(title, options.steps()).expecting(expected);
    let verdict = kv::compare(options, stop, &mut progress).map_err(into_error)?;
    progress.finish(if verdict.interrupted { "interrupted" } else { "measured" });
    Ok(verdict)
}

/// Converts wrong options to wrong usage.
fn into_error(error: KvError) -> anyhow::Error {
    match error {
        KvError::Options(why) => Usage(why).into(),
        other => other.into(),
    }
}

/// Returns how a comparison ended.
pub fn outcome(verdict: &Verdict) -> Outcome {
    match (verdict.interrupted, verdict.valid) {
        (true, _) => Outcome::Interrupted,
        (_, false) => Outcome::Invalid,
        _ => Outcome::Done,
    }
}
