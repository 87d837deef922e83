//! `heddle bench posix`: unmodified programs as kernel threads and, under `heddle run`, as tasks.

use std::env;

use anyhow::Context;
use heddle_bench::posix::{Kind, LONG_POLICY, POLICY, Part, PosixOptions, System};
use heddle_core::{Ns, Policy};
use heddle_policies::{Visitor, with_policy};
use heddle_sys::thread::affinity;

use super::kv_options::percent;
use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench posix`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench posix --report posix.html
  heddle bench posix --only micro --rounds 9 --json > micro.json
  heddle bench posix --only schbench,compute --policy two-queue:quantum=100us --policy round-robin:quantum=1ms
  heddle bench posix --only server --systems kernel,heddle --load 30 --scan 20ms
  heddle bench posix --only mariadb --report mariadb.html

Parts, in the order of their tables: micro (single operations on one CPU), schbench (wake-up
latency of workers that compute, one, two and four for each CPU), compute (threads that share a
queue), first (a first thread that computes beside one that wakes up each millisecond, on one
CPU), server (a thread for each connection, 95 % GETs of 10 us and 5 % SCANs), mariadb (Debian's
mariadb-server, a private instance: point selects on 30 connections beside 2 that aggregate for 20
ms each), memcached (Debian's, an event loop in each of 2 and 8 threads: nothing to gain, nothing
may be lost), tokio (as server, on tokio with 2 and with 8 workers; needs cargo build -p
heddle-bench --example tokio_server).
Systems: kernel (plain), kernel-nice (the same, the threads that compute, of SCANs and aggregates
at nice 19; first, server and mariadb), heddle (heddle run, once for each --policy). All run the
same binaries: Debian's, or compiled with cc when the bench starts. heddle run needs
libheddle_pthread.so beside this program, or HEDDLE_PTHREAD_LIBRARY.
Ratios: wakeup_p99_gain and p99.9_gain, the kernel's over a system's; requests_kept, jobs_kept,
steps_kept, aggregates_kept and gets_kept, a system's over the kernel's, as p99_of_kernel.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The systems to compare (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = Kind::ALL)]
    systems: Vec<Kind>,
    /// A policy for heddle, with parameters (repeatable); the targets apply to the default, else to the first
    /// [default: two-queue:quantum=100us, and for mariadb two-queue:quantum=200us, too].
    #[arg(long = "policy", value_name = "TEXT", value_parser = policy)]
    policies: Vec<String>,
    /// Multiplications of matrices in a request of schbench [default: 5, as in schbench].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    operations: Option<u32>,
    /// The load of the server, in per cent of the kernel's capacity; of mariadb, in per cent of half of it, because the
    /// other half is for aggregates.
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    load: f64,
    /// How long a SCAN of the server computes.
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = scan)]
    scan: Ns,
    /// The seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    extent: Extent,
}

struct Exists;

impl Visitor for Exists {
    type Out = ();

    fn visit<P: Policy>(self, _: P) {}
}

fn policy(text: &str) -> Result<String, String> {
    with_policy(text, Exists).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

fn scan(text: &str) -> Result<Ns, String> {
    match text.parse::<Ns>() {
        Ok(time) if (Ns::from_us(1)..=Ns::from_secs(1)).contains(&time) => Ok(time),
        _ => Err("expected a time from 1us to 1s".into()),
    }
}

/// Measures and reports.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<PosixOptions> {
    if !(1.0..=100.0).contains(&args.load) {
        let wrong = args.load;
        let text =
            format!("--load: {wrong} per cent of the kernel's capacity is not from 1 to 100");
        return Err(Usage(text).into());
    }
    let program = env::current_exe().context("cannot find the file of this program")?;
    let of = |policies: &[String]| System::of(&args.systems, policies);
    let heddle = args.systems.iter().filter(|&&kind| kind == Kind::Heddle);
    let longer = heddle.map(|_| System::Heddle(LONG_POLICY.into())).take(1).collect();
    let (systems, of_servers) = match args.policies.as_slice() {
        [] => (of(&[POLICY.into()]), longer),
        chosen => (of(chosen), Vec::new()),
    };
    let mut options = PosixOptions::new(&systems, &affinity()?, program, args.extent.quick);
    options.of_servers = of_servers;
    choose(&mut options.parts, &args.only);
    options.operations = args.operations.unwrap_or(options.operations);
    options.load = args.load / 100.0;
    options.scan = args.scan;
    options.seed = args.seed;
    options.rounds = args.extent.rounds.unwrap_or(options.rounds);
    options.duration = args.extent.duration().unwrap_or(options.duration);
    Ok(options)
}
