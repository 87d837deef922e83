//! `heddle cargo`: cargo, whose rustc inserts preemption probes, and compiles tokio with Heddle's edits.
//!
//! The command becomes cargo. cargo then calls this program instead of rustc, under the name heddle-rustc.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use heddle_probes::cargo::Work;
use heddle_probes::rustc::Wrapped;
use heddle_probes::{cargo, check, rustc};

use super::cc::{print_compilers, refusal};
use crate::exit::{self, Outcome, Usage};
use crate::out;

/// Options of `heddle cargo`. They are ours only where they come first.
#[derive(clap::Args)]
#[command(
    override_usage = "\
heddle cargo [--tokio [--no-probes]] [+TOOLCHAIN] build|test|run|bench|check [PASS OPTIONS] CARGO ARGUMENTS...
       heddle cargo --check [--json]",
    after_help = "\
Examples:
  heddle cargo build --release
  heddle cargo test --heddle-period=2000
  HEDDLE_CLANG=/usr/bin/clang-22 heddle cargo run --release -- --port 80
  heddle cargo --tokio build --release
  HEDDLE_TOKIO=1 heddle run --policy two-queue:quantum=100us target/release/server
  heddle cargo --check
  heddle cargo -- build --help

Compiles the program and its dependencies with probes, except procedural macros and build scripts
(libraries that only they use have some); the standard library comes compiled, without.
C and C++ in dependencies are compiled as by `heddle cc` if there is a clang that it supports; CC
and CXX are replaced then. The pass is built on first use; that needs the headers of rustc's LLVM
(Debian: llvm-22-dev).

RUSTFLAGS and cargo's configuration keep their meaning, except that a wrapper in
build.rustc-wrapper is not called; one in RUSTC_WRAPPER is refused. What is built with probes lies
beside what is not, and is compiled again when the pass or its options change. `heddle cc --help`
lists the pass's options.

With --tokio the program's tasks on tokio's multi-thread runtimes become Heddle's: a policy
schedules each, and preempts its polls. That takes HEDDLE_TOKIO=1 and `heddle run` where the
program runs; without them it runs as with tokio's own source. An edited copy of tokio is compiled
instead of the original; Cargo.toml and Cargo.lock stay as they are. Another tokio than 1.49 to
1.54 is refused. --no-probes leaves the program without probes and needs no LLVM.

Not supported: linker-plugin-lto (rustc's own lto is), other targets than x86_64 Linux. The exit
code is cargo's, or 2 if cargo was not started; then one sentence says why."
)]
pub struct Args {
    /// List this machine's compilers, and whether they can compile with probes.
    #[arg(long)]
    check: bool,
    /// Make the program's tasks on tokio Heddle's.
    #[arg(long)]
    tokio: bool,
    /// Insert no probes.
    #[arg(long, requires = "tokio")]
    no_probes: bool,
    /// Print one JSON object instead of a table.
    #[arg(long, requires = "check")]
    json: bool,
    /// A subcommand of cargo's and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Becomes cargo, or lists the compilers.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.check {
        return match args.arguments.first() {
            None => print_compilers(&check::default_rustc(), args.json),
            Some(_) => Err(Usage(
                "--check lists compilers and takes no arguments; for `cargo check`: heddle cargo check".into(),
            )
            .into()),
        };
    }
    let work = Work { probes: !args.no_probes, tokio: args.tokio };
    let cargo = cargo::command(work, args.arguments).map_err(refusal)?;
    if let Some(reason) = cargo.no_clang {
        exit::note(&format!("heddle: C and C++ in dependencies get no probes: {reason}"));
    }
    become_program(cargo.command)
}

/// Does what cargo wants of rustc. `arguments` are those of the wrapper.
pub fn rustc(arguments: Vec<OsString>) -> anyhow::Result<Outcome> {
    match rustc::command(arguments).map_err(refusal)? {
        Wrapped::Become(command) => become_program(command),
        Wrapped::Version(mut command, line) => {
            let output = command.output().with_context(|| cannot_run(&command))?;
            let answer = String::from_utf8_lossy(&output.stdout);
            anyhow::ensure!(
                output.status.success(),
                "{}: {}; {}",
                cannot_run(&command),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
            out::text(&format!("{}\n{line}\n", answer.trim_end()))?;
            Ok(Outcome::Done)
        }
    }
}

fn become_program(mut command: Command) -> anyhow::Result<Outcome> {
    let error = command.exec();
    Err(error).with_context(|| cannot_run(&command))
}

fn cannot_run(command: &Command) -> String {
    format!("cannot run {}", command.get_program().to_string_lossy())
}
