//! `heddle sim run`: runs one scenario once.

use std::path::PathBuf;
use std::time::Instant;

use heddle_metrics::{human, write_atomically};
use heddle_sim::report::{run_report, schedule_csv, summary};
use heddle_sim::{Outcome as Simulated, Scenario, run_steered, run_watched};

use super::background::simulate;
use super::output::{Destination, claim};
use super::scenario::{ScenarioArgs, flag};
use super::steering;
use super::traced::{self, Steps};
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle sim run`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("steps_of").args(["schedule", "perfetto"]).multiple(true)))]
#[command(after_help = "\
Example:
  heddle sim run shinjuku
  heddle sim run shinjuku --policy fifo --load 0.8
  heddle sim run --policy two-queue --cpus 8 --mix aspen-rocksdb --load 0.7 --report run.html
  heddle sim run mine.toml --set costs.switch=200ns --json
  heddle sim run shinjuku --requests 1000 --schedule steps.csv
  heddle sim run shinjuku --requests 1000 --perfetto run.pftrace
  heddle sim run --steer sita --cpus 6 --mix 'get: 99.5% 11us, scan: 0.5% 700us' --load 0.5

The same scenario always gives the same figures. Slowdown is response time over service time.
Exit code 3 if the run has no steady state: its figures must not be quoted.")]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// The policy (heddle policies): two-queue:quantum=5us.
    #[arg(long)]
    policy: Option<String>,
    /// Bind each request to a CPU on arrival, by a steering policy (heddle policies --steer) or a file,
    /// ./mine.c. Each CPU then serves its own queue in order, unless --policy names another policy with a queue
    /// per CPU. The policy sees the longest part of the mix as SCANs and the others as GETs.
    #[arg(long, value_name = "POLICY", conflicts_with = "schedule")]
    steer: Option<String>,
    /// The arriving load, as a share of the CPUs' capacity: 0.7 or 70%.
    #[arg(long, conflicts_with = "rate", allow_negative_numbers = true)]
    load: Option<String>,
    /// The load in requests per second: 200k/s.
    #[arg(long, allow_negative_numbers = true)]
    rate: Option<String>,
    /// Print the scenario, with all flags applied, as a file, and do not run it.
    #[arg(long)]
    print_scenario: bool,
    #[command(flatten)]
    to: Destination,
    /// Also write the first steps of the schedule to this file: ns,cpu,task,what.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Also write them as a trace for https://ui.perfetto.dev.
    #[arg(long, value_name = "FILE", conflicts_with = "steer")]
    perfetto: Option<PathBuf>,
    /// The number of steps.
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "steps_of")]
    steps: usize,
}

/// Runs the scenario and prints the results.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let policy =
        args.policy.clone().or_else(|| args.steer.as_ref().map(|_| steering::QUEUES.into()));
    let over = [
        flag("--policy", "policy", &policy),
        flag("--load", "workload.load", &args.load),
        flag("--rate", "workload.rate", &args.rate),
    ];
    let scenario = args.scenario.scenario(&[], &over.into_iter().flatten().collect::<Vec<_>>())?;
    if args.print_scenario {
        out::text(&scenario.to_toml())?;
        return Ok(Outcome::Done);
    }
    for file in args.to.report.iter().chain(&args.schedule).chain(&args.perfetto) {
        claim(file, args.to.force)?;
    }
    let steered = args.steer.as_deref().map(|text| steering::open(text, &scenario)).transpose()?;
    let stop = interrupt::flag()?;
    let (begin, simulated) = (Instant::now(), scenario.clone());
    let kept = if args.schedule.is_some() { args.steps } else { 0 };
    let trace = args.perfetto.as_deref().map(|path| (path, args.steps));
    // Without steps to record, nothing is watched.
    let is_watched = kept > 0 || trace.is_some();
    let steps = Steps::new(kept, trace, &scenario.policy)?;
    let done = simulate("sim run", 1, &stop, move |pool| {
        pool.begin(&simulated.policy)?;
        if let Some(mut steered) = steered {
            return run_steered(&simulated, &mut steered).map(|outcome| (outcome, steps));
        }
        match is_watched {
            false => heddle_sim::run(&simulated).map(|outcome| (outcome, steps)),
            true => run_watched(&simulated, steps),
        }
    })?;
    let Some((outcome, steps)) = done else {
        args.perfetto.iter().for_each(|file| traced::discard(file));
        return Ok(Outcome::Interrupted);
    };
    let took = begin.elapsed().as_secs_f64();
    if let Some(file) = &args.schedule {
        write_atomically(file, &schedule_csv(&steps.kept.steps))?;
    }
    steps.finish(args.perfetto.as_deref())?;
    print(&args, &scenario, &outcome, took)?;
    Ok(if outcome.unstable.is_some() { Outcome::Invalid } else { Outcome::Done })
}

fn print(args: &Args, scenario: &Scenario, outcome: &Simulated, took: f64) -> anyhow::Result<()> {
    let name = match &args.steer {
        Some(steer) => format!("{}, steered by {steer}", args.scenario.name()),
        None => args.scenario.name(),
    };
    let (report, results) = run_report(&name, scenario, outcome);
    if let Some(file) = &args.to.report {
        report.write(file)?;
    }
    if args.to.json {
        return Ok(out::text(&format!("{}\n", results.to_json()))?);
    }
    let events = outcome.counts.events() as f64;
    let table = summary(&name, scenario, outcome).to_text(out::style());
    let dropped = match outcome.counts.dropped {
        0 => String::new(),
        dropped => format!("  {dropped} dropped requests, not included in any figure\n"),
    };
    Ok(out::text(&format!(
        "{table}{dropped}  {:.3} s simulated in {took:.3} s: {} events, {}\n",
        outcome.time.as_secs_f64(),
        human(events, ""),
        human(events / took, "1/s").replace("/s", " events/s"),
    ))?)
}
