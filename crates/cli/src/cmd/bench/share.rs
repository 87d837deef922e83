//! `heddle bench share`: applications that share a CPU.

use std::env;

use anyhow::Context;
use heddle_bench::kv::Cpus;
use heddle_bench::share::{Part, ShareOptions, System, run_child};

use super::kv_options::percent;
use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle bench share`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench share --report share.html
  heddle bench share --only switch --rounds 15 --json > switch.json
  heddle bench share --only service --loads 10,50 --seconds 5 --systems alone,share,nice,cgroup
  heddle bench share --only wake --systems alone,share

Parts, in the order of their tables: switch (two applications give one CPU to each other; wall
time one way), service (a server, GETs of 10 us, beside a batch program that computes on two
threads, on one CPU: Skyloft's Figure 7), memcached (the same with Debian's memcached), rocksdb
(the same with heddle kv serve on RocksDB, 0.5 % long SCANs; it takes a build with --features
rocksdb), wake (how late a task that sleeps for 1 ms wakes up beside the batch program).
Systems of switch: share-yield (two members of a share, real time), share-futex (the same beside
an idle member), share-ordinary (a share without real time), futex, eventfd, pipe (two processes
that wake each other), sched_yield (two SCHED_FIFO processes).
Systems of the others: alone (the server under heddle run, without a batch program), share,
share-ordinary (both under heddle run --share; heddle kv serve joins by itself), kernel (both
plain), nice (the batch program at nice 19), cgroup (weights 8192 and 2, or 10000 and 1 in version
2), idle (the batch program under SCHED_IDLE), fifo (the server under SCHED_FIFO).
Ratios: of_futex, a switch over that of futex; p99_over_alone and p99_over_share, a system's p99
over theirs; be_share, the batch program's steps over what it does alone; of_left, that over what
the server left.
It takes two CPUs, and for real time root or CAP_SYS_NICE. heddle run needs libheddle_pthread.so
beside this program, or HEDDLE_PTHREAD_LIBRARY.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The systems to compare (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Loads of service, memcached and rocksdb, in per cent of what the server does alone [default: 10,30,50,70].
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// The seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    extent: Extent,
    /// Measure once in this process and print the figures as JSON; used by the runner.
    #[arg(long, hide = true, value_name = "JOB")]
    child: Option<String>,
}

/// Measures and reports; as a child of the runner, measures once.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(job) = &args.child {
        out::text(&format!("{}\n", run_child(job).map_err(Usage)?))?;
        return Ok(Outcome::Done);
    }
    suite::run(&options(&args)?, &args.extent)
}

fn options(args: &Args) -> anyhow::Result<ShareOptions> {
    let program = env::current_exe().context("cannot find the file of this program")?;
    let allowed = heddle_sys::thread::affinity()?;
    let first = allowed.get(..1);
    let cpus = Cpus::divide(&allowed, first).map_err(anyhow::Error::msg)?;
    let mut options = ShareOptions::new(&args.systems, cpus, program, args.extent.quick);
    choose(&mut options.parts, &args.only);
    if let Some(wrong) = args.loads.iter().find(|percent| !(1.0..=100.0).contains(*percent)) {
        let text = format!("--loads: {wrong} per cent of the capacity is not from 1 to 100");
        return Err(Usage(text).into());
    }
    if !args.loads.is_empty() {
        options.loads = args.loads.iter().map(|percent| percent / 100.0).collect();
    }
    options.seed = args.seed;
    if let Some(rounds) = args.extent.rounds {
        (options.rounds, options.switch_rounds) = (rounds, rounds);
    }
    options.duration = args.extent.duration().unwrap_or(options.duration);
    Ok(options)
}
