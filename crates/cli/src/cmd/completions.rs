//! `heddle completions`: a script that completes commands and options in a shell.

use clap_complete::Shell;

use crate::exit::Outcome;
use crate::{definition, out};

/// Options of `heddle completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle completions bash > ~/.local/share/bash-completion/completions/heddle
  heddle completions zsh > ~/.zfunc/_heddle
  heddle completions fish > ~/.config/fish/completions/heddle.fish

For zsh, put ~/.zfunc on fpath before compinit runs. A new shell reads the script.")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

/// Prints the script.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "heddle", &mut script);
    out::text(&String::from_utf8(script)?)?;
    Ok(Outcome::Done)
}
