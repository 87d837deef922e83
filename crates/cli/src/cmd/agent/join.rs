//! `heddle agent join`: another program into an enclave.

use std::ffi::OsString;

use heddle_agent::guardian::{self, Answer, Enclaves, Folder, GuardianError, Request, ask};

use super::{child, refused};
use crate::exit::Outcome;
use crate::out;

/// Options of `heddle agent join`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent join lc -- ./batch --all
  heddle agent join lc --pid 812

The exit code is the program's. When the enclave ends, the program goes on under the default scheduler.")]
pub struct Args {
    /// The enclave.
    name: String,
    /// A process that runs.
    #[arg(long, conflicts_with = "program", required_unless_present = "program")]
    pid: Option<u32>,
    /// A program to start, and its arguments.
    #[arg(last = true)]
    program: Vec<OsString>,
}

/// Starts or moves the program.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let joined = Enclaves::here().folder(&args.name).and_then(|folder| match args.pid {
        Some(pid) => {
            let threads = join(&folder, pid)?;
            Ok((
                format!("Enclave {}: {threads} threads of process {pid} came in.\n", args.name),
                None,
            ))
        }
        None => {
            let ask = |pid| join(&folder, pid).map(drop);
            let code = guardian::launch::run(&child::launcher(), &args.program, ask)?;
            Ok((String::new(), Some(code)))
        }
    });
    match joined {
        Ok((text, None)) => {
            out::text(&text)?;
            Ok(Outcome::Done)
        }
        Ok((_, Some(code))) => Ok(Outcome::Program(code)),
        Err(error) => refused(error),
    }
}

fn join(folder: &Folder, pid: u32) -> Result<usize, GuardianError> {
    match ask(folder, &Request::Join { pid })? {
        Answer::Joined { threads } => Ok(threads),
        other => Err(GuardianError::Failed(format!("an answer that does not fit: {other:?}"))),
    }
}
