//! `heddle sim paper`: published results beside simulated ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use heddle_metrics::{Cell, Mark, Report, Results, Table, human};
use heddle_sim::SimError;
use heddle_sim::papers::{self, Finding, Paper};
use heddle_sim::sweep::Pool;

use super::background::simulate;
use super::output::{self, Destination};
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle sim paper`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle sim paper
  heddle sim paper skyloft-8b --quick
  heddle sim paper skyloft-7a skyloft-7bc --report skyloft.html

Without a name, lists what can be reproduced. `all` runs everything, which takes some minutes.")]
pub struct Args {
    /// The results to reproduce.
    names: Vec<String>,
    /// Run a tenth of the requests and a quarter of the points: shows the order of the curves, not figures to quote.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    to: Destination,
}

/// Reproduces the results and prints them.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.names.is_empty() {
        out::text(&list().to_text(out::style()))?;
        return Ok(Outcome::Done);
    }
    let names = chosen(&args.names)?;
    args.to.report.iter().try_for_each(|path| output::claim(path, args.to.force))?;
    let (stop, quick) = (interrupt::flag()?, args.quick);
    let (steps, flag) = (names.len() as u64, Arc::clone(&stop));
    let done = simulate("sim paper", steps, &stop, move |pool| {
        // A step is one paper's result, however many runs it takes.
        let go_on = |_: &str| !flag.load(Ordering::Relaxed);
        let findings = names.iter().map(|name| {
            pool.begin(name)?;
            Ok(papers::run(name, quick, &Pool::new(&go_on))?.unwrap_or_default())
        });
        findings.collect::<Result<Vec<_>, SimError>>().map(|all| all.concat())
    })?;
    let Some(findings) = done else { return Ok(Outcome::Interrupted) };
    let results = Results::here(papers::rows(&findings));
    args.to.report.iter().try_for_each(|path| report(&findings, &results).write(path))?;
    if args.to.json {
        out::text(&format!("{}\n", results.to_json()))?;
    } else {
        out::text(&(table(&findings).to_text(out::style()) + &agreements(&findings)))?;
    }
    Ok(Outcome::Done)
}

/// Returns a line per figure and metric: how many published values the simulator matches.
fn agreements(findings: &[Finding]) -> String {
    let mut groups: Vec<(&str, &str)> = findings.iter().map(|f| (f.figure, f.metric)).collect();
    groups.sort_unstable();
    groups.dedup();
    let line = |(figure, metric): (&str, &str)| {
        let agreement = papers::agreement(findings.iter().filter(|f| f.figure == figure), metric)?;
        (agreement.count > 1).then(|| format!("{figure} {metric}: {agreement}\n"))
    };
    groups.into_iter().filter_map(line).collect()
}

fn list() -> Table {
    let mut table = Table::new("Published results", ["name", "compares", "source"]);
    let line = |paper: &Paper| [paper.name, paper.summary, paper.source].map(Cell::text).into();
    table.rows = papers::list().iter().map(line).collect();
    table
}

fn chosen(names: &[String]) -> Result<Vec<String>, Usage> {
    let known: Vec<&str> = papers::list().iter().map(|paper| paper.name).collect();
    if names.iter().any(|name| name == "all") {
        return Ok(known.into_iter().map(String::from).collect());
    }
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(names.to_vec()),
        Some(name) => Err(Usage(format!(
            "unknown published result {name}; expected all, or {}",
            known.join(", ")
        ))),
    }
}

fn table(findings: &[Finding]) -> Table {
    let head = ["figure", "system", "metric", "load", "paper", "simulator", "difference", "note"];
    let mut table = Table::new("Papers against the simulator", head);
    table.rows = findings.iter().map(line).collect();
    table
}

fn line(finding: &Finding) -> Vec<Cell> {
    // A count has no unit.
    let unit = if finding.unit == "1" { "" } else { finding.unit };
    let number = |value: f64| Cell::number(human(value, unit));
    let or_none = |cell: Option<Cell>| cell.unwrap_or_else(|| Cell::number("-"));
    let value = number(finding.value);
    vec![
        Cell::text(finding.figure),
        Cell::text(&finding.system),
        Cell::text(finding.metric),
        or_none(finding.load.map(|load| Cell::number(human(load, "1/s")))),
        or_none(finding.paper.map(number)),
        if finding.invalid.is_some() { value.marked(Mark::Invalid) } else { value },
        or_none(finding.error().map(|error| Cell::number(format!("{:+.1} %", error * 100.0)))),
        Cell::text(&finding.note),
    ]
}

fn report(findings: &[Finding], results: &Results) -> Report {
    let report = Report::new("Papers against the simulator")
        .section("Curves", "Published and simulated values.");
    let report = papers::plots(findings).into_iter().fold(report, Report::plot);
    report
        .section("All values", agreements(findings))
        .table(table(findings))
        .results(results.clone())
}
