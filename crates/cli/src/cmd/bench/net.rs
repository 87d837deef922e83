//! `heddle bench net`: the runtime's own network beside the kernel's.

use heddle_bench::kv::Cpus;
use heddle_bench::net::{NetOptions, Part, run_child};

use super::suite::{self, Extent, choose};
use crate::exit::Outcome;

/// Options of `heddle bench net`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench net --report net.html
  heddle bench net --only udp,tcp --rounds 9 --json > net.json
  heddle bench net --only tcp --connections 1,1000,10000 --seconds 5

Parts, in the order of their tables: udp (64 bytes there and back: one at a time with ends that
spin and ends that sleep, and 32 at a time), tcp (64 bytes there and back on each connection),
stack (the TCP stack alone, two of them joined in memory), tail (GETs beside SCANs of the
key-value server at half of saturation; preemptions without a cause), stream (one in each
direction, with checksums computed and with the default offloads), loss (1 % of the packets),
idle (a look at a lane, CPU time without work, memory of a connection).
Systems: plain (one thread on kernel sockets), kernel (Heddle's runtime, net=kernel), xdp (lanes);
xdp-both has lanes at both ends.
Needs root: the bench makes network namespaces, joined by a veth pair, and load never leaves them.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Numbers of connections in tcp and stack (comma-separated) [default: 1,100,1000].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Vec<u16>,
    #[command(flatten)]
    extent: Extent,
    /// Run as one of the ends; used by the runner.
    #[arg(long, hide = true, value_name = "JOB")]
    child: Option<String>,
}

/// Measures and reports; as a child of the runner, is a server or a client.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(job) = &args.child {
        run_child(job)?;
        return Ok(Outcome::Done);
    }
    let allowed = heddle_sys::thread::affinity()?;
    let cpus = Cpus::divide(&allowed, None).map_err(anyhow::Error::msg)?;
    let mut options = NetOptions::new(cpus, args.extent.quick);
    choose(&mut options.parts, &args.only);
    if !args.connections.is_empty() {
        options.connections = args.connections;
    }
    if let Some(rounds) = args.extent.rounds {
        options.rounds = rounds;
    }
    if let Some(duration) = args.extent.duration() {
        options.duration = duration;
    }
    suite::run(&options, &args.extent)
}
