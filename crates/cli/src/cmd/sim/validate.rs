//! `heddle sim validate`: compares the simulator with queueing theory.

use std::sync::Mutex;

use heddle_metrics::{Cell, Mark, Progress, Results, Table, human};
use heddle_sim::validate::{self, Check};

use super::background::unless_interrupted;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle sim validate`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle sim validate --quick
  heddle sim validate --json > validation.json

Each line is a simulated queue with a known answer. Metric: relative_error, in per cent.
Exit code 3 if one does not agree.")]
pub struct Args {
    /// Run briefly: a check that everything works, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Simulates and compares.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let checks = unless_interrupted(&stop, move || {
        let progress = Mutex::new(None);
        let checks = validate::run(args.quick, |done, of| {
            let mut progress = progress.lock().expect("no thread panics with it");
            progress
                .get_or_insert_with(|| Progress::new("sim validate", of as u64))
                .step(&format!("{done} done"));
        });
        progress
            .into_inner()
            .into_iter()
            .flatten()
            .for_each(|progress| progress.finish("simulated"));
        checks
    });
    let Some(checks) = checks else { return Ok(Outcome::Interrupted) };
    if args.json {
        out::text(&format!("{}\n", Results::here(validate::rows(&checks)).to_json()))?;
    } else {
        out::text(&table(&checks).to_text(out::style()))?;
    }
    Ok(if checks.iter().all(Check::agrees) { Outcome::Done } else { Outcome::Invalid })
}

fn table(checks: &[Check]) -> Table {
    let head = ["case", "measure", "expected", "measured", "95 %", "relative_error"];
    let mut table = Table::new("The simulator against queueing theory", head);
    table.rows = checks.iter().map(line).collect();
    table
}

fn line(check: &Check) -> Vec<Cell> {
    let unit = check.measure.unit();
    let error = Cell::number(format!("{:+.2} %", check.relative_error() * 100.0));
    vec![
        Cell::text(&check.case),
        Cell::text(check.measure.to_string()),
        Cell::number(human(check.expected, unit)),
        Cell::number(human(check.measured.value, unit)),
        Cell::number(format!("± {}", human(check.measured.half_width, unit))),
        if check.agrees() { error } else { error.marked(Mark::Invalid) },
    ]
}
