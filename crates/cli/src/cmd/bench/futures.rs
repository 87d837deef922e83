//! `heddle bench async`: async tasks on Heddle, tokio and smol.

use heddle_bench::futures::{AsyncOptions, Part, System, run_child};
use heddle_bench::kv::Cpus;

use super::kv_options::percent;
use super::suite::{self, Extent, choose};
use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle bench async`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench async --report async.html
  heddle bench async --only micro,memory --rounds 9 --json > micro.json
  heddle bench async --only 10ms --loads 50,80 --seconds 5 --systems heddle-two-queue,tokio,tokio-8

Parts, in the order of their tables: micro (spawn and await, one at a time and 10,000 at once,
yield, wake; CPU time of the whole process), memory (idle tasks with 64 bytes of state, a hundred
thousand and a million), 1ms (requests of 5 us, 1 % of 1 ms, one future each, spawned by a thread
on another CPU), 10ms (50 us, 1 % of 10 ms), blocking (50 us; 1 % sleep in the kernel for 10 ms),
mutex (as 1ms; each holds one mutex of the standard library for a fifth of its time), saturation
(requests of 5 us, as many as are served).
Systems: heddle-work-stealing, heddle-two-queue (quantum 100 us, beside requests of 10 ms 1 ms),
heddle-fifo (no preemption), heddle-threads, tokio (one worker), tokio-8 (eight on the same CPU),
tokio-current (current_thread), smol. micro leaves out heddle-fifo and tokio-8, memory also
heddle-two-queue and tokio-current; the parts with requests compare heddle-two-queue, heddle-fifo,
tokio and tokio-8.
Ratios: p99_gain_over_tokio and p99_gain_over_tokio_8, the p99 of theirs over a system's;
p50_of_tokio and throughput_of_tokio, a system's over tokio's.
Exit code 3 if a part failed or a run is invalid; 130 after Ctrl-C, which prints what was measured
so far.")]
pub struct Args {
    /// Run only these parts (comma-separated).
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The systems to compare (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Loads of 1ms and 10ms, in per cent of what one worker can compute [default: 30,50,70].
    #[arg(long, value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
    /// The seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    extent: Extent,
    /// Measure once in this process and print the figures as JSON; used by the runner.
    #[arg(long, hide = true, value_name = "TRIAL")]
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

fn options(args: &Args) -> anyhow::Result<AsyncOptions> {
    let allowed = heddle_sys::thread::affinity()?;
    let first = allowed.get(..1);
    let cpus = Cpus::divide(&allowed, first).map_err(anyhow::Error::msg)?;
    let mut options = AsyncOptions::new(&args.systems, cpus, args.extent.quick);
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
        (options.rounds, options.micro_rounds) = (rounds, rounds);
    }
    if let Some(duration) = args.extent.duration() {
        options.duration = duration;
    }
    Ok(options)
}
