//! `heddle sim compare`: plots several policies over the load.

use heddle_sim::report::{curves_report, curves_table};
use heddle_sim::sweep::curves;
use heddle_sim::{Flag, Scenario};

use super::background::simulate;
use super::loads::Loads;
use super::output::Destination;
use super::scenario::ScenarioArgs;
use super::{output, policies};
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle sim compare`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle sim compare shinjuku
  heddle sim compare aspen --policies fifo,two-queue:quantum=5us,long=1ms,srpt --report aspen.html
  heddle sim compare --cpus 8 --mix aspen-rocksdb --policies fifo,round-robin --loads 0.1..0.9:9

Each curve ends at the first load without a steady state, drawn hollow. A parameter after a comma
(long=1ms) belongs to the policy before it. The report is NAME-compare.html unless --report or
--json is given; an existing file is replaced only with --force.")]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// The policies (comma-separated) [default: the scenario's, and fifo,
    /// work-stealing, two-queue, shinjuku].
    #[arg(long, value_name = "LIST", alias = "policy")]
    policies: Vec<String>,
    /// Loads as shares of the CPUs' capacity: a list, or a range and its number of points.
    #[arg(long, default_value = "0.1..0.9:9,0.95", allow_hyphen_values = true)]
    loads: Loads,
    #[command(flatten)]
    to: Destination,
}

/// Returns the scenario under each policy. The load is varied, so none need be given.
pub fn scenarios(args: &ScenarioArgs, asked: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let before = [
        Flag::new("the default load", "workload.load", "0.5"),
        Flag::new("the default policy", "policy", "fifo"),
    ];
    let scenario = args.scenario(&before, &[])?;
    let chosen = policies::chosen(asked, &scenario.policy);
    let under =
        |policy: &String| args.scenario(&before, &[Flag::new("--policies", "policy", policy)]);
    Ok(chosen.iter().map(under).collect::<Result<_, _>>()?)
}

/// Simulates, writes the plot, and prints the table.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let name = args.scenario.name();
    let scenarios = scenarios(&args.scenario, &args.policies)?;
    let path = output::report_path(args.to.report, args.to.json, &format!("{name}-compare.html"));
    path.iter().try_for_each(|path| output::claim(path, args.to.force))?;
    let stop = interrupt::flag()?;
    let (all, loads) = (scenarios.clone(), args.loads.0);
    let steps = (all.len() * loads.len()) as u64;
    let done = simulate("sim compare", steps, &stop, move |pool| curves(&all, &loads, pool))?;
    let Some(outcomes) = done else { return Ok(Outcome::Interrupted) };
    let (report, results) = curves_report(&name, &scenarios, &outcomes);
    path.iter().try_for_each(|path| report.write(path))?;
    if args.to.json {
        out::text(&format!("{}\n", results.to_json()))?;
    } else {
        let place = path.map_or(String::new(), |path| output::location(&path));
        out::text(&(curves_table(&name, &scenarios, &outcomes).to_text(out::style()) + &place))?;
    }
    Ok(Outcome::Done)
}
