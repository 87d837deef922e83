//! The `heddle` command: a thin main over the crates, one file a subcommand in [`cmd`].
//!
//! What holds for every subcommand:
//!
//! - **I1** The exit code says what happened ([`exit::Outcome`]); scripts need not read the text.
//! - **I2** Results go to standard output through [`out`], progress and errors to standard error. A reader
//!   that goes away (`heddle doctor | head -1`) ends the command quietly and never makes it panic.
//! - **I3** Colour appears only on a terminal, and never when `NO_COLOR` is set.
//! - **I4** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]
// `println!` panics when the reader is gone: `out` is the way (I2).
#![deny(clippy::print_stdout)]

use std::process::ExitCode;

use clap::Parser;

mod cmd;
mod exit;
mod interrupt;
mod out;

/// Choose how your service's work is scheduled, on a stock Linux kernel.
#[derive(Parser)]
#[command(name = "heddle", version, max_term_width = 100, after_help = exit::CODES, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    exit::code(Cli::parse().command.run())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command shows an example in its help, nested ones too.
    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name());
                if sub.has_subcommands() {
                    check(sub, &path);
                    continue;
                }
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "`{path} --help` has no example");
            }
        }
        check(&Cli::command(), "heddle");
    }
}
