//! `heddle bench kv`: a key-value server on several systems, under the same load.

use std::path::PathBuf;

use heddle_bench::kv;
use heddle_metrics::tables;

use super::kv_options::{self, Extent, KvArgs};
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle bench kv`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench kv --report kv.html
  heddle bench kv --system 'heddle two-queue:quantum=200us' --system tokio --loads 50 --rounds 9
  heddle bench kv --mix syrup --json > kv.json

One server at a time runs on its own CPUs; the load comes from the last one. The saturation
load is found once; then each round measures every system at every load.
Metrics: p50, p99, p99.9 of get and scan; throughput; cpu of the server; p999_ratio, a
system's GET p99.9 over that of two-queue at half of saturation; scan_throughput_ratio,
SCANs alone a second with preemption over those without; of the calibration, scan_ratio, how
many GETs a SCAN is as long as, and get_alone_p99.9, the tail that is the machine's own.
Exit code 3 where the figures that are compared come from invalid runs.")]
pub struct Args {
    #[command(flatten)]
    kv: KvArgs,
    /// Loads, in per cent of saturation.
    #[arg(long, value_delimiter = ',', value_parser = kv_options::percent, default_value = "20,35,50,65,80")]
    loads: Vec<f64>,
    /// How often everything is repeated.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds that each point is measured.
    #[arg(long, default_value = "5", value_parser = kv_options::point_seconds)]
    seconds: f64,
    /// Print the results as one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Write an HTML report to this file as well.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Compares and reports.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { kv, loads, rounds, seconds, json, report } = args;
    let options = kv_options::options(kv, Extent { loads, rounds, seconds })?;
    let stop = interrupt::flag()?;
    let verdict = kv_options::compare("bench kv", &options, &stop)?;
    if let Some(path) = &report {
        kv::report(&options, &verdict).write(path)?;
    }
    if json {
        out::text(&format!("{}\n", verdict.results.to_json()))?;
    } else {
        let mut text = String::new();
        for table in tables(&verdict.results) {
            text += &(table.to_text(out::style()) + "\n");
        }
        verdict.headlines.iter().for_each(|line| text += &format!("{line}\n"));
        text += &format!("Measured on {}.\n", verdict.results.machine.summary());
        out::text(&text)?;
    }
    Ok(kv_options::outcome(&verdict))
}
