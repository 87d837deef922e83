//! The subcommands. To add one: a file here with `Args` (clap) and `run(Args) -> anyhow::Result<Outcome>`, and a
//! variant with its arm below. An `after_help` with an example is required; a test looks for it.

use clap::Subcommand;

use crate::exit::Outcome;

mod doctor;

/// What `heddle` can be asked to do.
#[derive(Subcommand)]
pub enum Command {
    /// Say what this machine can do, and what follows from it.
    Doctor(doctor::Args),
    /// Measure: operations of threads, a key-value server under load.
    #[command(subcommand, arg_required_else_help = true)]
    Bench(Bench),
}

/// What `heddle bench` can measure.
#[derive(Subcommand)]
pub enum Bench {}

impl Command {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Doctor(args) => doctor::run(args),
            Self::Bench(bench) => bench.run(),
        }
    }
}

impl Bench {
    fn run(self) -> anyhow::Result<Outcome> {
        match self {}
    }
}
