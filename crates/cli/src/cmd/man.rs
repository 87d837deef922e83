//! `heddle man`: the manual pages, one for each command.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use super::UNLISTED;
use crate::definition;
use crate::exit::Outcome;

/// Options of `heddle man`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle man ~/.local/share/man/man1 && man heddle-steer-attach

Existing pages are replaced.")]
pub struct Args {
    /// The folder for the pages; it is created if it does not exist.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// The end of heddle(1).
const EXIT_CODES: &str = "\
Example: heddle demo

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 invalid result (for example, the load generator fell
behind), 130 interrupted.";

/// Writes the pages: `heddle.1`, `heddle-steer.1`, `heddle-steer-attach.1` and so on.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let folder = &args.folder;
    let pages = UNLISTED.into_iter().fold(definition().after_help(EXIT_CODES), |all, name| {
        all.mut_subcommand(name, |one| one.hide(false))
    });
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(pages, folder))
        .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    Ok(Outcome::Done)
}
