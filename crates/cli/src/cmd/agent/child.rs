//! The processes that `heddle agent run` starts from this binary: the agent, the cleaner, and the launcher that
//! becomes the program.

use std::ffi::OsString;
use std::path::PathBuf;

use heddle_agent::guardian::{Backends, CLEANER_PROCESS, cleaner_process, launch as launching};

use crate::exit::Outcome;

/// Options of the launcher.
#[derive(clap::Args)]
pub struct Launch {
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// The launcher's command line; the program follows.
pub fn launcher() -> Vec<OsString> {
    ["/proc/self/exe", "agent", "launch", "--"].map(OsString::from).into()
}

/// Stops itself, then becomes the program when continued.
pub fn launch(args: &Launch) -> Outcome {
    Outcome::Program(u8::try_from(launching::launch(&args.program)).unwrap_or(1))
}

/// Returns the backends of this machine.
pub fn backends() -> &'static dyn Backends {
    &heddle_agent::guardian::KernelBackends
}

/// Options of the cleaner.
#[derive(clap::Args)]
pub struct Cleaner {
    /// The enclave's folder.
    folder: PathBuf,
}

/// The cleaner's command line; the folder follows.
pub fn cleaner_command() -> Vec<OsString> {
    ["/proc/self/exe", "agent", CLEANER_PROCESS].map(OsString::from).into()
}

/// Waits for its guardian to end, then undoes what the guardian left.
pub fn cleaner(args: &Cleaner) -> Outcome {
    cleaner_process(&args.folder, backends());
    Outcome::Done
}

/// The agent process: obeys its guardian on standard input.
pub fn agent() -> anyhow::Result<Outcome> {
    heddle_agent::guardian::agent_process();
    Ok(Outcome::Done)
}
