//! `heddle agent`: policies that schedule the threads of unmodified programs.

use clap::Subcommand;
use heddle_agent::guardian::{AGENT_PROCESS, CLEANER_PROCESS, GuardianError};

use crate::exit::{Outcome, Usage};

mod child;
mod existing;
mod join;
mod report;
mod resize;
mod run;
mod status;
mod stop;
pub mod time;
mod upgrade;

/// The end of `heddle agent run --help`.
pub const EXAMPLES: &str = "\
Examples:
  sudo heddle agent run --policy shinjuku:quantum=1ms --cpus 2-7 --name lc -- ./server --port 80
  sudo heddle agent join lc -- ./batch
  sudo heddle agent status lc --watch

`heddle policies` lists the policies; docs/agents/README.md is the manual.";

/// What `heddle agent` can do.
#[derive(Subcommand)]
pub enum Agent {
    /// Start a program, or move a running one, under a policy.
    Run(Box<run::Enclave>),
    /// Add a program to an existing enclave: start it there, or move a running one.
    Join(join::Args),
    /// Show enclaves: threads, queues, commits, scheduling delays.
    #[command(visible_alias = "ls")]
    Status(status::Args),
    /// Replace a running agent by this binary, with the same policy or another.
    Upgrade(upgrade::Args),
    /// Give a running enclave other CPUs: more, fewer, or different ones.
    Resize(resize::Args),
    /// Return all threads of an enclave to the default scheduler; the program continues.
    Stop(stop::Args),
    /// The agent process itself.
    #[command(hide = true, name = AGENT_PROCESS)]
    Process,
    /// Cleans up after a guardian.
    #[command(hide = true, name = CLEANER_PROCESS)]
    Cleaner(child::Cleaner),
    /// Stops itself, and becomes a program when it is continued.
    #[command(hide = true)]
    Launch(child::Launch),
}

impl Agent {
    /// Runs the chosen subcommand.
    pub fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Run(args) => run::run(*args),
            Self::Join(args) => join::run(args),
            Self::Status(args) => status::run(args),
            Self::Upgrade(args) => upgrade::run(args),
            Self::Resize(args) => resize::run(args),
            Self::Stop(args) => stop::run(args),
            Self::Process => child::agent(),
            Self::Cleaner(args) => Ok(child::cleaner(&args)),
            Self::Launch(args) => Ok(child::launch(&args)),
        }
    }
}

/// Converts a refusal into the result that ends the command.
fn refused(error: GuardianError) -> anyhow::Result<Outcome> {
    match error {
        GuardianError::Usage(text) => Err(Usage(text).into()),
        GuardianError::Interrupted => Ok(Outcome::Interrupted),
        GuardianError::NoProgram(_) => Ok(Outcome::Program(report(&error, 127))),
        GuardianError::NotExecutable(..) => Ok(Outcome::Program(report(&error, 126))),
        GuardianError::System { what, source } => Err(anyhow::Error::new(source).context(what)),
        GuardianError::Failed(text) => Err(anyhow::Error::msg(text)),
    }
}

/// Prints `error`, and returns `code`.
fn report(error: &GuardianError, code: u8) -> u8 {
    eprintln!("heddle: {error}");
    code
}
