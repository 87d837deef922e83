//! `heddle kv`: the key-value server that demonstrates policies, and its load generator.

use clap::Subcommand;

use crate::exit::Outcome;

pub mod load;
mod serve;

/// The end of `heddle kv --help`.
pub const EXAMPLES: &str = "\
Examples:
  heddle kv serve --keys 20000 --policy two-queue:quantum=100us
  heddle kv load --rate 2000,4000 --mix get=95,scan=5 --scan-len 5000 --keys 20000 --seconds 10

`heddle bench kv` runs both on several systems and policies, and compares them.";

/// What `heddle kv` can do.
#[derive(Subcommand)]
pub enum Kv {
    /// Serve keys and values over RESP and datagrams, on Heddle, tokio or threads.
    Serve(serve::Args),
    /// Offer an open-loop load to a running server, and measure its latencies.
    Load(load::Args),
}

impl Kv {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Serve(args) => serve::run(args),
            Self::Load(args) => load::run(args),
        }
    }
}
