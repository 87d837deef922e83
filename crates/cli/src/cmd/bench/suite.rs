//! Options and output shared by benches of several parts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use heddle_bench::suite::{self, Part, Suite};
use heddle_core::Ns;
use heddle_metrics::{Machine, Progress, Results};

use super::kv_options::point_seconds;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// The shared options.
#[derive(clap::Args)]
pub struct Extent {
    /// Rounds per figure.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds to measure each point.
    #[arg(long, value_parser = point_seconds)]
    seconds: Option<f64>,
    /// Run everything once and briefly: a check that it works, not figures to quote.
    #[arg(long)]
    pub quick: bool,
    /// Print the results as one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Also write an HTML report to this file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    report: Option<PathBuf>,
}

impl Extent {
    /// Returns how long to measure each point, if given.
    pub fn duration(&self) -> Option<Ns> {
        self.seconds.map(|seconds| Ns((seconds * 1e9) as u64))
    }
}

/// Keeps the `parts` that `only` names, or all if it is empty.
pub fn choose<P: Part>(parts: &mut Vec<P>, only: &[P]) {
    if !only.is_empty() {
        parts.retain(|part| only.contains(part));
    }
}

/// Measures and reports.
pub fn run<S: Suite>(suite: &S, extent: &Extent) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let mut progress = Progress::new(S::NAME, suite.steps());
    let outcome = suite::run(suite, &stop, &mut progress);
    progress.finish("measured");
    if cfg!(debug_assertions) {
        eprintln!(
            "heddle: this is a debug build; do not quote these figures (cargo build --release)"
        );
    }
    let results = Results::here(outcome.rows.clone());
    if let Some(path) = &extent.report {
        suite.report(&outcome, &results).write(path)?;
    }
    if extent.json {
        out::text(&format!("{}\n", results.to_json()))?;
        // Scripts read the rows; a person watching still wants the targets.
        outcome.targets.iter().for_each(|target| eprintln!("{}", target.line()));
    } else {
        out::text(&summary(suite, &outcome, &results.machine))?;
    }
    Ok(ending(outcome.valid(), &stop))
}

fn summary<S: Suite>(suite: &S, outcome: &suite::Outcome<S::Part>, machine: &Machine) -> String {
    let mut text = String::new();
    for table in &outcome.tables {
        text += &(table.to_text(out::style()) + "\n");
    }
    outcome.lines().chain(outcome.gaps()).for_each(|line| text += &format!("{line}\n"));
    text += "\n";
    suite.conditions().iter().for_each(|line| text += &format!("{line}\n"));
    text + &format!("Measured on {}.\n", machine.summary())
}

fn ending(valid: bool, stop: &AtomicBool) -> Outcome {
    match (stop.load(Relaxed), valid) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Done,
        (false, false) => Outcome::Invalid,
    }
}
