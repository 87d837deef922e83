//! `heddle agent join`: adds a program to an enclave.

use std::ffi::OsString;

use heddle_agent::guardian::{
    self, Answer, Enclaves, Folder, GuardianError, JoinReport, Request, Target, ask,
};
use serde_json::json;

use super::existing::ExistingProcesses;
use super::{child, refused};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle agent join`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent join lc -- ./batch --all
  heddle agent join lc --pid 812
  heddle agent join lc --unit nginx

The exit code is the program's. When the enclave ends, the program continues under the default
scheduler.")]
pub struct Args {
    /// The enclave.
    name: String,
    #[command(flatten)]
    running: ExistingProcesses,
    /// Print what joined as one JSON object.
    #[arg(long, conflicts_with = "program")]
    json: bool,
    /// A program to start, and its arguments.
    #[arg(last = true, required_unless_present = "running")]
    program: Vec<OsString>,
}

/// Starts or moves the program.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let target = args.running.target()?;
    let folder = match Enclaves::here().folder(&args.name) {
        Ok(folder) => folder,
        Err(error) => return refused(error),
    };
    let Some(target) = target else {
        let ask = |pid| join(&folder, Target::Pid(pid)).map(drop);
        return match guardian::launch::run(&child::launcher(), &args.program, ask) {
            Ok(code) => Ok(Outcome::Program(code)),
            Err(error) => refused(error),
        };
    };
    match join(&folder, target.clone()) {
        Ok(taken) => print(&args, &target, &taken),
        Err(error) => refused(error),
    }
}

fn print(args: &Args, target: &Target, taken: &JoinReport) -> anyhow::Result<Outcome> {
    if args.json {
        out::json(&json!({ "schema": 1, "enclave": args.name, "taken": taken }))?;
    } else {
        let later = target.later();
        out::text(&format!("Enclave {}: {taken} joined; {later}.\n", args.name))?;
    }
    Ok(Outcome::Done)
}

fn join(folder: &Folder, target: Target) -> Result<JoinReport, GuardianError> {
    match ask(folder, &Request::Join { target })? {
        Answer::Joined { taken, .. } => Ok(taken),
        other => Err(GuardianError::Failed(format!("unexpected answer: {other:?}"))),
    }
}
