//! `heddle share`: several applications on the same CPUs, one at a time on each.

use clap::Subcommand;

use crate::exit::Outcome;

pub mod launch;
mod ls;
mod serve;
mod site;
mod status;
mod top;
mod view;

pub use site::Site;

/// The end of `heddle share --help`.
pub const EXAMPLES: &str = "\
Examples:
  echo 'cpus = \"2-7\"' > share.toml
  sudo heddle run --share share.toml -- ./server              latency-critical
  sudo heddle run --share share.toml --class be -- ./batch    has the CPUs that the server leaves
  sudo heddle share top share.toml

`heddle run --share` starts the broker if none runs. docs/design/share.md says how CPUs are handed
over.";

/// What `heddle share` can do.
#[derive(Subcommand)]
pub enum Share {
    /// Run the broker of a share: it admits applications and takes CPUs from those that keep them.
    Serve(serve::Args),
    /// List the shares whose brokers run.
    Ls(ls::Args),
    /// Show who has which CPU, since when and why.
    Status(status::Args),
    /// Show again and again what part of each CPU each application has.
    Top(top::Args),
}

impl Share {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Serve(args) => serve::run(&args),
            Self::Ls(args) => ls::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Top(args) => top::run(&args),
        }
    }
}
