//! `heddle net`: the connections and counters of programs that have a network of their own (`HEDDLE_NET`).

mod ls;
mod stats;
mod which;

use clap::Subcommand;

use crate::exit::Outcome;

/// The end of `heddle net --help`.
pub const EXAMPLES: &str = "\
Examples:
  sudo HEDDLE_NET=xdp:eth0 ./server      lanes instead of the kernel's sockets
  sudo heddle net ls
  sudo heddle net stats server

`ss` does not see these connections. docs/net.md is the manual; `heddle doctor` says which
interfaces can have lanes.";

/// What `heddle net` can do.
#[derive(Subcommand)]
pub enum Net {
    /// List sockets and connections, as `ss` does for the kernel's.
    Ls(ls::Args),
    /// Show what lanes, the program at XDP and the control thread have counted.
    Stats(stats::Args),
}

impl Net {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Ls(args) => ls::run(&args),
            Self::Stats(args) => stats::run(&args),
        }
    }
}
