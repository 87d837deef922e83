//! `heddle sim sweep`: how much load each policy can take, and with which quantum.

use heddle_core::Ns;
use heddle_sim::report::{sweep_report, sweep_table};
use heddle_sim::sweep::{QUANTA, Slo, steps, sweep};

use super::background::simulate;
use super::compare::scenarios;
use super::output::{self, Destination};
use super::scenario::ScenarioArgs;
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle sim sweep`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle sim sweep shinjuku
  heddle sim sweep aspen --slo 'get p99 <= 20us, scan p99 <= 2ms' --policies two-queue,shinjuku
  heddle sim sweep rocksdb --quanta 2us,5us,10us --requests 50000

An objective is '[PART] WHICH [slowdown|wait] <= LIMIT': p99.9 slowdown <= 50, get p99 <= 20us,
mean <= 1ms; if several are given, separated by commas, all must hold. The load is found by
bisection to half a per cent. Policies with a quantum are tried with each of --quanta, then around
the best. Short runs miss a slow overload: --requests should leave thousands to each CPU. The
report is NAME-sweep.html unless --report or --json is given; an existing file is replaced only
with --force.")]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// The policies (comma-separated) [default: the scenario's, and fifo,
    /// work-stealing, two-queue, shinjuku].
    #[arg(long, value_name = "LIST", alias = "policy")]
    policies: Vec<String>,
    /// The objective.
    #[arg(long, default_value = "p99.9 slowdown <= 50")]
    slo: Slo,
    /// The quanta to try [default: 1us to 1ms, three a decade].
    #[arg(long, value_delimiter = ',')]
    quanta: Vec<Ns>,
    #[command(flatten)]
    to: Destination,
}

/// Searches, writes the report, and prints the table.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let name = args.scenario.name();
    let scenarios = scenarios(&args.scenario, &args.policies)?;
    for scenario in &scenarios {
        args.slo.check(scenario).map_err(|e| Usage(format!("--slo: {e}")))?;
    }
    let mut quanta = if args.quanta.is_empty() { QUANTA.to_vec() } else { args.quanta };
    if quanta.contains(&Ns::ZERO) {
        return Err(Usage("--quanta: a quantum must be above zero, for example 5us".into()).into());
    }
    quanta.sort();
    quanta.dedup();
    let path = output::report_path(args.to.report, args.to.json, &format!("{name}-sweep.html"));
    path.iter().try_for_each(|path| output::claim(path, args.to.force))?;
    let stop = interrupt::flag()?;
    let (all, slo, runs) = (scenarios.clone(), args.slo.clone(), steps(&scenarios, quanta.len()));
    let done = simulate("sim sweep", runs, &stop, move |pool| sweep(&all, &slo, &quanta, pool))?;
    let Some(found) = done else { return Ok(Outcome::Interrupted) };
    let (report, results) = sweep_report(&name, &args.slo, &scenarios, &found);
    path.iter().try_for_each(|path| report.write(path))?;
    if args.to.json {
        out::text(&format!("{}\n", results.to_json()))?;
    } else {
        let place = path.map_or(String::new(), |path| output::location(&path));
        out::text(&(sweep_table(&args.slo, &found).to_text(out::style()) + &place))?;
    }
    Ok(Outcome::Done)
}
