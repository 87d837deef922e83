//! `heddle sim`: what a policy would do on another machine.

use clap::Subcommand;

use crate::exit::Outcome;

mod background;
mod compare;
mod list;
mod loads;
mod output;
mod paper;
mod policies;
mod run;
pub mod scenario;
mod steering;
mod sweep;
mod traced;
mod validate;

pub use output::claim;

/// The end of `heddle sim --help`: examples that lead a newcomer to a plot.
pub const EXAMPLES: &str = "\
Example, which plots four policies over the load in one HTML file:
  heddle sim compare shinjuku

More examples:
  heddle sim list                                   the available scenarios, mixes and mechanisms
  heddle sim run shinjuku --load 0.8                one run, as a table
  heddle sim run --policy two-queue --cpus 8 --mix aspen-rocksdb --load 0.7
  heddle sim sweep shinjuku --slo 'p99.9 slowdown <= 50'
  heddle sim run shinjuku --print-scenario > mine.toml   a file to edit: heddle sim run mine.toml";

/// What `heddle sim` can do.
#[derive(Subcommand)]
pub enum Sim {
    /// Run one scenario: its response times, and where the CPUs' time went.
    Run(run::Args),
    /// Plot several policies over the load, in one HTML file.
    Compare(compare::Args),
    /// Find each policy's highest load that meets an objective, and the best quantum for it.
    Sweep(sweep::Args),
    /// List the available scenarios, mixes, mechanisms, policies and keys.
    List(list::Args),
    /// Compare the simulator with queueing theory, on queues with known answers.
    Validate(validate::Args),
    /// Compare the simulator with published results of papers.
    Paper(paper::Args),
}

impl Sim {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Run(args) => run::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Sweep(args) => sweep::run(args),
            Self::List(args) => list::run(args),
            Self::Validate(args) => validate::run(args),
            Self::Paper(args) => paper::run(args),
        }
    }
}
