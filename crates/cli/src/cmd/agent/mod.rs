//! Agents from the command line: `heddle agent -- PROGRAM` and what belongs to it.

use clap::Subcommand;
use heddle_agent::guardian::{AGENT_PROCESS, CLEANER_PROCESS, GuardianError};

use crate::exit::{Outcome, Usage};

mod child;
mod join;
mod report;
mod run;
mod running;
mod status;
mod stop;
mod time;
mod upgrade;

/// Options of `heddle agent`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    override_usage = "heddle agent --policy POLICY [OPTIONS] -- PROGRAM [ARGS]...\n       heddle agent --policy POLICY [OPTIONS] --pid PID | --unit NAME | --cgroup PATH\n       heddle agent <COMMAND>",
    after_help = "\
Example:
  heddle agent --policy shinjuku:quantum=1ms --cpus 2-7 -- ./server --port 80
  heddle agent --policy fifo --pid 812
  heddle agent --policy priority --cpus 2-7 --unit nginx
  heddle agent --policy shinjuku --cpus 2-7 --name lc
  heddle agent join lc -- ./batch
  heddle agent status lc --watch

Needs root. The program goes on under the default scheduler whatever happens to its agent; its exit
code is this command's (128 + n where signal n ended it, 127 where there is no such program, 126 where
it cannot be started). `heddle policies` lists the policies."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Agent>,
    #[command(flatten)]
    run: run::Enclave,
}

/// What else can be done with enclaves.
#[derive(Subcommand)]
enum Agent {
    /// Show enclaves: threads, queues, commits, scheduling delays.
    #[command(visible_alias = "ls")]
    Status(status::Args),
    /// Put a program into an enclave that exists: start it there, or move one that runs.
    Join(join::Args),
    /// Replace a running agent by this binary, with the same policy or another.
    Upgrade(upgrade::Args),
    /// Give all threads of an enclave back to the default scheduler; the program goes on.
    Stop(stop::Args),
    /// The agent process itself.
    #[command(hide = true, name = AGENT_PROCESS)]
    Process,
    /// Waits to clean up.
    #[command(hide = true, name = CLEANER_PROCESS)]
    Cleaner(child::Cleaner),
    /// Stops itself, and becomes a program when it is continued.
    #[command(hide = true)]
    Launch(child::Launch),
}

/// Runs what was asked for.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.command {
        None => run::run(args.run),
        Some(Agent::Status(args)) => status::run(args),
        Some(Agent::Join(args)) => join::run(args),
        Some(Agent::Upgrade(args)) => upgrade::run(args),
        Some(Agent::Stop(args)) => stop::run(args),
        Some(Agent::Process) => child::agent(),
        Some(Agent::Cleaner(args)) => Ok(child::cleaner(&args)),
        Some(Agent::Launch(args)) => Ok(child::launch(&args)),
    }
}

/// A refusal, as the command ends with it.
fn refused(error: GuardianError) -> anyhow::Result<Outcome> {
    match error {
        GuardianError::Usage(text) => Err(Usage(text).into()),
        GuardianError::Interrupted => Ok(Outcome::Interrupted),
        GuardianError::NoProgram(_) => Ok(Outcome::Program(told(&error, 127))),
        GuardianError::NotExecutable(..) => Ok(Outcome::Program(told(&error, 126))),
        GuardianError::System { what, source } => Err(anyhow::Error::new(source).context(what)),
        GuardianError::Failed(text) => Err(anyhow::Error::msg(text)),
    }
}

fn told(error: &GuardianError, code: u8) -> u8 {
    eprintln!("heddle: {error}");
    code
}
