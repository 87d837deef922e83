//! `heddle kv load`: an open-loop load generator against a running server.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use heddle_core::Ns;
use heddle_load::{LoadOptions, LoadRun, Mix, Moment, Op, Pace, Shape, Wire};
use heddle_metrics::{Collector, Results, Run, tables};

use crate::exit::{Outcome, Usage};
use crate::interrupt;
use crate::out;

/// Options of `heddle kv load`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle kv serve --keys 20000 &
  heddle kv load --rate 2000,4000 --mix get=95,scan=5 --scan-len 5000 --keys 20000 --seconds 10
  heddle kv serve --protocol memcached --value-size 2 --keys 100000 &
  heddle kv load --target 127.0.0.1:7379 --wire memcached --mix usr --value-size 2 --rate 10000

Presets for --mix, after the papers: shinjuku, bimodal-95-5, bimodal-50-50, syrup, badger, usr.
Latency counts from the time at which a request was due. A run is invalid (exit code 3) if more
than 1.5 % of its sends were more than a millisecond late (with --wire http also for lack of an
idle connection: raise --connections), if more than 0.05 % of the requests got no answer, or if
any answer was an error.
Ctrl-C ends the run early, prints what was measured and exits with 130.")]
pub struct Args {
    /// The server, as HOST:PORT; its UDP port with --wire udp, else its TCP port.
    #[arg(long, default_value = "127.0.0.1:7380")]
    target: String,
    /// Allow a target on another machine.
    #[arg(long)]
    allow_remote: bool,
    /// How requests travel.
    #[arg(long, value_enum, default_value_t = WireName::Udp)]
    wire: WireName,
    /// TCP connections with --wire resp, memcached or http.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// Requests per second; several rates run one after the other.
    #[arg(long, value_delimiter = ',', required = true, allow_negative_numbers = true)]
    rate: Vec<f64>,
    /// Operations and their weights (get, scan, set), or a preset.
    #[arg(long, default_value = "get=95,scan=5")]
    mix: Mix,
    /// Keys in the server's dataset.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Keys that a SCAN reads.
    #[arg(long, default_value_t = 1_000)]
    scan_len: u32,
    /// Bytes that a SET writes.
    #[arg(long, default_value_t = 100)]
    value_size: u16,
    /// Seconds to measure, after the warm-up.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds of warm-up, which do not count.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    warmup: f64,
    /// When a request counts as lost.
    #[arg(long, default_value = "1s")]
    timeout: Ns,
    /// The seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<u32>,
    /// Sleep between requests instead of spinning, for a CPU shared with the server.
    #[arg(long)]
    sleep: bool,
    /// The server's name in the results.
    #[arg(long, default_value = "server")]
    label: String,
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WireName {
    /// The compact datagrams of heddle kv serve; lost ones are counted.
    Udp,
    /// RESP over TCP, as Redis clients speak it.
    Resp,
    /// memcached's text protocol over TCP: GETs and SETs.
    Memcached,
    /// HTTP/1.1 on keep-alive connections, one request at a time on each: GET /get/KEY and
    /// GET /scan/KEY?count=N. A request that finds no idle connection waits, and its latency counts.
    Http,
}

pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=86_400.0).contains(&s) => Ok(s),
        _ => Err("expected a number of seconds, at most a day".into()),
    }
}

pub fn ns(seconds: f64) -> Ns {
    Ns((seconds * 1e9) as u64)
}

/// Offers each load in turn, and prints the results.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let target =
        heddle_load::resolve(&args.target, args.allow_remote).map_err(|e| Usage(e.to_string()))?;
    let options = options(&args, target);
    for &rate in &args.rate {
        options.check(rate).map_err(|e| Usage(e.to_string()))?;
    }
    if let Some(cpu) = args.cpu {
        let cannot =
            |e| Usage(format!("cannot run on CPU {cpu}: {e}; heddle doctor lists the usable ones"));
        heddle_sys::thread::pin(&[cpu]).map_err(cannot)?;
    }
    let stop = interrupt::flag()?;
    let unloaded = heddle_load::unloaded_service(&options)?;
    let mut runs = Vec::new();
    for &rate in &args.rate {
        let mut status = Status::new(rate);
        let run = heddle_load::measure(&options, rate, unloaded, |moment| {
            status.show(moment);
            !stop.load(Ordering::Relaxed)
        })?;
        status.end(&run);
        runs.push(run);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    print(&args, &runs, unloaded)?;
    Ok(outcome(&runs, &stop))
}

fn options(args: &Args, target: SocketAddr) -> LoadOptions {
    LoadOptions {
        target,
        wire: match args.wire {
            WireName::Udp => Wire::Udp,
            WireName::Resp => Wire::Resp { connections: args.connections.into() },
            WireName::Memcached => Wire::Memcached { connections: args.connections.into() },
            WireName::Http => Wire::Http { connections: args.connections.into() },
        },
        mix: args.mix.clone(),
        shape: Shape::new(args.keys as usize, args.scan_len, args.value_size.into()),
        duration: ns(args.seconds),
        warmup: ns(args.warmup),
        timeout: args.timeout,
        seed: args.seed,
        pace: if args.sleep { Pace::Sleep } else { Pace::Busy },
    }
}

fn print(
    args: &Args,
    runs: &[LoadRun],
    unloaded: [Option<Ns>; Op::ALL.len()],
) -> anyhow::Result<()> {
    let mut collect = Collector::new();
    for run in runs {
        heddle_load::add_rows(&mut collect, &args.label, &args.mix, run);
    }
    for op in args.mix.ops() {
        if let Some(service) = unloaded[op.index()] {
            let value = Run::ok(service.0 as f64);
            collect.add(&args.label, op.name(), "unloaded_service", "ns", value);
        }
    }
    let results = Results::here(collect.into_rows());
    if args.json {
        return Ok(out::text(&format!("{}\n", results.to_json()))?);
    }
    let text: String = tables(&results).iter().map(|t| t.to_text(out::style()) + "\n").collect();
    Ok(out::text(&text)?)
}

fn outcome(runs: &[LoadRun], stop: &AtomicBool) -> Outcome {
    if stop.load(Ordering::Relaxed) {
        return Outcome::Interrupted;
    }
    let invalid = runs.iter().any(|run| run.invalid().is_some());
    if invalid { Outcome::Invalid } else { Outcome::Done }
}

/// One line on standard error that follows a run; if that is not a terminal, only its end.
struct Status {
    rate: f64,
    terminal: bool,
    next: Ns,
}

impl Status {
    fn new(rate: f64) -> Status {
        Status { rate, terminal: std::io::stderr().is_terminal(), next: Ns::ZERO }
    }

    /// At most four times a second: more would delay the sender.
    fn show(&mut self, moment: Moment<'_>) {
        if !self.terminal || moment.now < self.next {
            return;
        }
        self.next = moment.now + Ns::from_ms(250);
        let (now, end) = (moment.now.as_secs_f64(), moment.end.as_secs_f64());
        let sent = moment.tally.counts().due;
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{} requests/s: {:.0} of {:.0} s, {sent} sent",
            self.rate,
            now.min(end),
            end
        );
    }

    fn end(&self, run: &LoadRun) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let verdict = run.invalid().map_or(String::new(), |why| format!("; INVALID: {why}"));
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "{clear}{} requests/s: {}{verdict}", self.rate, run.summary());
    }
}
