//! The `heddle` command: a thin main over the crates, one file a subcommand in [`cmd`].
//!
//! What holds for every subcommand:
//!
//! - **I1** The exit code says what happened ([`exit::Outcome`]); scripts need not read the text.
//! - **I2** Results go to standard output through [`out`], progress and errors to standard error. A reader that
//!   goes away (`heddle doctor | head -1`) ends the command quietly and never makes it panic.
//! - **I3** Colour appears only on a terminal, and never when `NO_COLOR` is set.
//! - **I4** There is no `unsafe` in this crate.
//! - **I5** Wrong usage is one sentence on standard error that says what is wrong and where to look ([`usage`]).

#![forbid(unsafe_code)]
// `println!` panics when the reader is gone; use `out` (I2).
#![deny(clippy::print_stdout)]

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use heddle_probes::shims::Shim;

mod cmd;
#[cfg(test)]
mod documents;
mod exit;
mod interrupt;
mod out;
mod sources;
mod spelling;
mod usage;

/// `heddle --help`, which fits 24 lines of 80 columns; a test counts. A result is invalid if, for example, the
/// load generator fell behind.
const HELP: &str = "\
{about}

  heddle demo                                          see it in three minutes
  sudo heddle steer attach --port 8000 --policy jiq    requests to idle workers
  sudo heddle agent run --policy priority -- ./server  schedule any program

{usage-heading} heddle COMMAND [OPTIONS]; heddle COMMAND --help
{subcommands}
Also: metrics, net, cc, c++, cargo (probes), compare A B, completions SHELL, man
Exit codes: 0 success, 1 failure, 2 usage, 3 invalid result, 130 interrupted.
";

/// Choose how your service's work is scheduled, on a stock Linux kernel.
#[derive(Parser)]
#[command(
    name = "heddle",
    version,
    max_term_width = 100,
    help_template = HELP,
    // `spelling` turns `heddle help COMMAND` into `heddle COMMAND --help`.
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

/// The commands and options, for completions and manual pages.
fn definition() -> clap::Command {
    Cli::command()
}

fn main() -> ExitCode {
    let words = env::args_os();
    if let Some(shim) = env::args_os().next().and_then(|program| Shim::called(&program)) {
        return exit::code(cmd::run_shim(shim, words.skip(1).collect()));
    }
    let typed = spelling::current(words.collect());
    if let Some(hint) = typed.hint {
        exit::note(&hint);
    }
    match Cli::try_parse_from(&typed.words) {
        Ok(cli) => exit::code(cli.command.run()),
        Err(error) => usage::report(&error, &typed.words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn help_fits_a_screen_and_starts_with_three_examples() {
        let help = definition().render_long_help().to_string();
        assert!(help.lines().count() <= 24, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        let examples: Vec<&str> = help.lines().skip(2).take(4).collect();
        assert!(examples[..3].iter().all(|line| line.contains("heddle ")), "{help}");
        assert_eq!(examples[3], "", "{help}");
        for command in definition().get_subcommands() {
            let mut words = help.split(|c: char| !c.is_alphanumeric() && c != '+');
            assert!(words.any(|word| word == command.get_name()), "{}", command.get_name());
        }
    }

    /// Every command shows an example in its help, groups and nested ones too.
    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let is_internal =
                |sub: &clap::Command| sub.is_hide_set() && !cmd::UNLISTED.contains(&sub.get_name());
            for sub in command.get_subcommands().filter(|sub| !is_internal(sub)) {
                let path = format!("{path} {}", sub.get_name());
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "`{path} --help` has no example");
                check(sub, &path);
            }
        }
        check(&definition(), "heddle");
    }

    /// clap breaks lines at 100 columns, and what is broken by hand at more is ragged then.
    #[test]
    fn the_ends_of_help_texts_fit_a_hundred_columns() {
        fn check(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines().filter(|line| line.chars().count() > 100) {
                // A command to be copied is not broken.
                assert!(line.starts_with("  "), "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&definition());
    }
}
