//! `heddle metrics`: counters and histograms of all layers, for Prometheus.

mod address;
mod collect;
mod http;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use heddle_core::Ns;
use heddle_metrics::write_atomically;

use self::address::Address;
use self::collect::Collector;
use self::http::Listener;
use crate::exit::{self, Outcome};
use crate::{interrupt, out};

/// Options of `heddle metrics`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("where").args(["listen", "output", "once"]).required(true)))]
#[command(after_help = "\
Examples:
  sudo heddle metrics --listen 127.0.0.1:9464
  heddle metrics --listen unix:/run/user/1000/heddle.sock
  heddle metrics --output /var/lib/node_exporter/heddle.prom --interval 15s
  heddle metrics --once | grep heddle_runtime

Sources: the pages of this user's Heddle programs, steering attachments, agents, and as root the
kernel's run-queue delays. heddle_exporter_source_up is 0 for a source that cannot be read. Any
client that can connect can read; there is no password. packaging/grafana/heddle.json is a
dashboard.")]
pub struct Args {
    /// Answer GET /metrics here, until Ctrl-C: HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    listen: Option<Address>,
    /// Write to this file again and again, atomically, for the textfile collector of node_exporter.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    output: Option<PathBuf>,
    /// Print the metrics once. Rates need two readings, but counters and histograms are whole.
    #[arg(long)]
    once: bool,
    /// How often the file is written.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = interval)]
    #[arg(conflicts_with_all = ["once", "listen"])]
    interval: Duration,
    /// Do not watch the kernel's switches, which costs about 200 ns each.
    #[arg(long)]
    no_kernel: bool,
}

/// Parses an interval from 100 ms to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    let time: Option<Ns> = text.parse().ok();
    let time = time.filter(|time| (Ns::from_ms(100)..=Ns::from_secs(3600)).contains(time));
    let time = time.ok_or_else(|| format!("`{text}` is not a duration from 100ms to 3600s"))?;
    Ok(Duration::from_nanos(time.0))
}

/// Serves, writes or prints the metrics.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    if args.once {
        let mut collector = Collector::new(!args.no_kernel);
        say_missing(&collector);
        out::text(&collector.collect().into_text())?;
        return Ok(Outcome::Done);
    }
    if let Some(address) = &args.listen {
        let listener = Listener::open(address).with_context(|| cannot_listen(address))?;
        let mut collector = Collector::new(!args.no_kernel);
        say_missing(&collector);
        exit::note(&format!("Metrics are at {}", listener.address()));
        listener.serve(&stop, || collector.collect().into_text())?;
        return Ok(Outcome::Done);
    }
    let file = args.output.as_deref().context("clap demands one of the three")?;
    let mut collector = Collector::new(!args.no_kernel);
    say_missing(&collector);
    write(file, args.interval, &mut collector, &stop)
}

fn cannot_listen(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("cannot listen on {address}"),
        Address::Unix(path) => format!("cannot listen on {}", path.display()),
    }
}

fn say_missing(collector: &Collector) {
    if let Some(why) = collector.missing() {
        exit::note(&format!("Without the kernel's run-queue delays: {why}"));
    }
}

/// Writes the file until `stop` is set.
fn write(
    file: &Path,
    interval: Duration,
    collector: &mut Collector,
    stop: &AtomicBool,
) -> anyhow::Result<Outcome> {
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        write_atomically(file, &collector.collect().into_prometheus_text())?;
        while begin.elapsed() < interval && !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20).min(interval.saturating_sub(begin.elapsed())));
        }
    }
    Ok(Outcome::Done)
}
