//! `heddle go`: runs heddle-go, as if it had been typed itself.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;

use crate::exit::Outcome;

mod tool;

/// Arguments of `heddle go`.
#[derive(clap::Args)]
#[command(
    // All that follows belongs to the tool, including --help and --version.
    disable_help_flag = true,
    after_help = "\
Examples:
  heddle go check
  heddle go build -o server ./cmd/server
  HEDDLE_GO=quantum=50us ./server
  heddle go test -race ./...
  heddle go --help

Programs built this way contain Heddle's scheduler; heddle go --help lists the settings that they
read at start.
The work is done by heddle-go, a program in Go. This command carries its sources, and builds it
with the installed Go on first use, in heddle/go-tool in the user's cache. HEDDLE_GO_TOOL names
another one to run."
)]
pub struct Args {
    /// A command of heddle-go (build, run, test, check, flags ...) and its arguments, passed on unchanged.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Becomes the tool, so that terminal, signals and exit status behave as if it had been run directly.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let Some(tool) = tool::find()? else { return Ok(Outcome::Interrupted) };
    // Its messages and help then name the command that was typed.
    let error = Command::new(&tool).arg0("heddle go").args(args.arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", tool.display()))
}
