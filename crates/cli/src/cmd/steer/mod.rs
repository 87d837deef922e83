//! `heddle steer`: policies that choose among a running server's sockets.

mod advice;
pub mod attach;
mod attachments;
mod check;
pub mod connect;
pub mod detach;
pub mod find;
mod follow;
pub mod history;
mod live_sockets;
mod ls;
mod map;
mod map_values;
pub mod packets;
pub mod policy;
pub mod port;
mod replace;
pub mod selector;
mod stats;

use clap::Subcommand;
use heddle_steer::request::{Answer, Error, ErrorKind};

use crate::exit::{Outcome, Usage};

/// The end of `heddle steer --help`.
pub const EXAMPLES: &str = "\
Examples:
  sudo heddle steer attach --port 8000 --policy jiq
  sudo heddle steer stats --port 8000 --watch
  sudo heddle steer detach --port 8000

`heddle policies --steer` lists the policies; docs/steering/README.md is the manual.";

/// What `heddle steer` can do.
#[derive(Subcommand)]
pub enum Steer {
    /// Attach a policy to a running server's sockets. The server is not changed.
    Attach(attach::Args),
    /// Detach a policy: the kernel chooses again.
    Detach(detach::Args),
    /// Replace a policy by another without losing an input.
    Replace(replace::Args),
    /// List the attachments.
    Ls(ls::Args),
    /// Show an attachment's choices, failures and cost per decision.
    Stats(stats::Args),
    /// Show or set the maps of an attachment's policy.
    Map(map::Args),
    /// Check a policy: what is wrong with it, and at which hooks it can be deployed.
    Check(check::Args),
}

impl Steer {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Attach(args) => attach::run(args),
            Self::Detach(args) => detach::run(args),
            Self::Replace(args) => replace::run(args),
            Self::Ls(args) => ls::run(args),
            Self::Stats(args) => stats::run(args),
            Self::Map(args) => map::run(args),
            Self::Check(args) => check::run(args),
        }
    }
}

/// Converts a refusal into the error that ends the command: an invalid request is wrong usage.
pub fn refused(error: Error) -> anyhow::Error {
    match error.kind {
        ErrorKind::Invalid => Usage(error.text).into(),
        _ => error.into(),
    }
}

/// The error for an answer to another request: a bug in Heddle, or a daemon of another version.
fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow::anyhow!("unexpected answer (is heddled of another version?): {answer:?}")
}
