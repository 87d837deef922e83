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
  heddle bench kv --system 'heddle two-queue:quantum=100us' --net kernel,xdp --loads 50

One server at a time runs on its own CPUs; the load comes from the last CPU. The saturation load
is determined once; then each round measures every system at every load.
Metrics: p50, p99, p99.9 of get and scan; throughput; cpu of the server; p999_ratio and p99_ratio,
a system's GET p99.9 or p99 over that of two-queue at half of saturation; scan_throughput_ratio,
SCANs alone per second with preemption over those without; from the calibration, scan_ratio, a
SCAN's length in GETs, and get_alone_p99.9, the machine's own tail.
Exit code 3 if the compared figures come from invalid runs.")]
pub struct Args {
    #[command(flatten)]
    kv: KvArgs,
    /// Loads, in per cent of saturation (comma-separated).
    #[arg(long, value_delimiter = ',', value_parser = kv_options::percent, default_value = "20,35,50,65,80")]
    loads: Vec<f64>,
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds to measure each point.
    #[arg(long, default_value = "5", value_parser = kv_options::point_seconds)]
    seconds: f64,
    /// Print the results as one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Also write an HTML report to this file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
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
        verdict.headline.iter().for_each(|line| text += &format!("{line}\n"));
        let notes = verdict.table.iter().flat_map(|table| &table.notes);
        notes.for_each(|line| text += &format!("{line}\n"));
        text += &format!("Measured on {}.\n", verdict.results.machine.summary());
        out::text(&text)?;
    }
    Ok(kv_options::outcome(&verdict))
}
