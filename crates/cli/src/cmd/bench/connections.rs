//! `heddle bench connections`: a server with increasing numbers of live connections.

use heddle_bench::connections::{ConnectionsOptions, Part, System, check_limits, serve};
use heddle_bench::kv::Cpus;

use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};

/// Options of `heddle bench connections`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench connections
  heddle bench connections --only few --connections 1000,20000 --rounds 5 --json > connections.json

Parts: accept (a thousand more connections, each with its first answer), few (answers when a
thousand of the connections are active), all (answers when all are).
Each end of a connection takes a descriptor in its process; the limit (RLIMIT_NOFILE) is raised as
far as allowed.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The servers (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Numbers of live connections (comma-separated) [default: 1000,10000,100000].
    #[arg(long, value_delimiter = ',', value_parser = connections)]
    connections: Vec<usize>,
    #[command(flatten)]
    extent: Extent,
    /// Run as the server; used by the runner.
    #[arg(long, hide = true, num_args = 3, value_names = ["SYSTEM", "CONNECTIONS", "CPU"])]
    serve: Option<Vec<String>>,
}

fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=1_000_000) => Ok(number),
        _ => Err("expected a number of connections from 1 to 1000000".into()),
    }
}

/// Measures and reports; as a child of the runner, serves.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(words) = &args.serve {
        let [system, most, cpu] = words.as_slice() else { unreachable!("clap takes three values") };
        serve(system.parse().map_err(Usage)?, most.parse()?, cpu.parse()?)?;
        return Ok(Outcome::Done);
    }
    let allowed = heddle_sys::thread::affinity()?;
    let cpus = Cpus::divide(&allowed, None).map_err(anyhow::Error::msg)?;
    let mut options = ConnectionsOptions::new(&args.systems, cpus, args.extent.quick);
    choose(&mut options.parts, &args.only);
    if !args.connections.is_empty() {
        options.levels.clone_from(&args.connections);
        options.levels.sort_unstable();
        options.levels.dedup();
    }
    if let Some(rounds) = args.extent.rounds {
        options.rounds = rounds;
    }
    if let Some(duration) = args.extent.duration() {
        options.duration = duration;
    }
    check_limits(options.most()).map_err(|error| Usage(error.to_string()))?;
    suite::run(&options, &args.extent)
}
