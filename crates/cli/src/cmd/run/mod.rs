//! `heddle run`: an unmodified pthread program whose threads Heddle schedules, by a preloaded library.
//!
//! The command becomes the program: it keeps the process, the terminal and the exit code. What could fail later, or
//! silently, is refused before that with exit code 2: a program that a preload does not reach ([`program`]), a library
//! that the loader does not take ([`library`]), settings with which the runtime does not start ([`settings`]).

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use heddle_agent::guardian::cpus::{self, Cpus};
use heddle_rt::Mechanism;

use self::check::Report;
use self::library::Objects;
use self::program::{Program, Refusal, show};
use self::settings::Setting;
use crate::exit::{Outcome, Usage};
use crate::out;

mod check;
mod elf;
mod library;
mod names;
mod program;
mod settings;
mod share;

/// Options of `heddle run`.
#[derive(clap::Args)]
#[command(
    override_usage = "\
heddle run [--policy POLICY] [OPTIONS] -- PROGRAM [ARGS]...
       heddle run --check [--json] PROGRAM",
    after_help = "\
Examples:
  heddle run --check ./server
  heddle run --policy two-queue:quantum=100us -- ./server --port 80
  heddle run --mechanism probe --policy two-queue:quantum=10us -- ./server-with-probes
  heddle run --policy priority --class 'be=compact*' --cpus 2-7 --report -- ./db_bench --threads=16
  sudo heddle run --share share.toml -- ./server
  sudo heddle run --share share.toml --class be -- ./batch
  heddle run --check --json ./server | jq -r '.uncovered[].name'

Runs dynamic programs for x86-64 on glibc 2.34 or later, as they are, and needs no privileges: a
preloaded library takes the place of the C library's threads, locks and blocking calls. The exit
code is the program's, or 2 if it was not started; then one sentence says why. With --check it is
0 if the program would run, and 2 if not. `heddle policies` lists the policies.
HEDDLE_PTHREAD_LIBRARY names another libheddle_pthread.so."
)]
pub struct Args {
    /// The policy that schedules the threads, with parameters after a colon [default: HEDDLE_POLICY, or
    /// work-stealing].
    #[arg(long)]
    policy: Option<String>,
    /// How threads are preempted: none, signal, probe for a program built by `heddle cc` or `heddle cargo`, uintr or
    /// uintr-timer for user interrupts [default: HEDDLE_MECHANISM, or the best that there is: uintr, probe, signal].
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// How many threads run at a time, each on its own CPU [default: HEDDLE_WORKERS, or one per CPU].
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// The CPUs to run on, such as 2-7,9 [default: HEDDLE_CPUS, or all].
    #[arg(long, value_name = "LIST", value_parser = cpus::parse)]
    cpus: Option<Cpus>,
    /// Which threads are lc (latency-critical) or be (best-effort), by name, such as be=compact*, or by the file of
    /// their code, such as be=module:librocksdb.so*; the first matching rule decides. With --share also the class of
    /// the program, without a pattern [default: lc].
    #[arg(long, value_name = "CLASS=PATTERN")]
    class: Vec<String>,
    /// Use the CPUs that this file describes together with other programs, one at a time on each: see `heddle share`.
    /// Starts the broker if none runs.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "workers"])]
    share: Option<PathBuf>,
    /// When the program ends, and at SIGQUIT, report on standard error what its threads did and where they blocked
    /// unseen.
    #[arg(long)]
    report: bool,
    /// Leave the program's first thread to the kernel: for a program that traces others, or whose first thread alone
    /// changes its namespaces, capabilities or system call filters.
    #[arg(long)]
    kernel_main: bool,
    /// Run only this program on Heddle, not those that it executes.
    #[arg(long)]
    no_follow: bool,
    /// Try programs with a virtual machine (Java, .NET) too.
    #[arg(long)]
    force: bool,
    /// Say whether the program would run, and which of its calls Heddle would see, without starting it.
    #[arg(long)]
    check: bool,
    /// Print one JSON object instead of text.
    #[arg(long, requires = "check")]
    json: bool,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Becomes the program, or checks whether it could.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let settings = settings::environment(&args)?;
    let result = match args.check {
        true => check(&args),
        false => start(&args, settings),
    };
    result.map_err(|error| match error.downcast::<Refusal>() {
        Ok(refusal) => Usage(refusal.to_string()).into(),
        Err(error) => error,
    })
}

fn start(args: &Args, settings: Vec<Setting>) -> anyhow::Result<Outcome> {
    let program = Program::find(&args.command[0])?;
    let prepared = prepare(&program, args.force)?;
    let share = share::environment(args)?;
    let mut command = Command::new(&program.path);
    command.envs(share).arg0(&args.command[0]).args(&args.command[1..]).envs(settings);
    command.env("LD_PRELOAD", library::preloads(&prepared.library));
    let error = command.exec();
    Err(Usage(format!("cannot start {}: {error}", show(&program.path))).into())
}

/// The library, and the objects with which it and the program will run.
struct Prepared {
    library: PathBuf,
    objects: Objects,
}

/// Finds the library, and asks the loader whether it takes it.
fn prepare(program: &Program, force: bool) -> anyhow::Result<Prepared> {
    let loader = program.loader(force)?;
    let library = library::find()?;
    let objects = library::trace(program, loader, &library, force)?;
    Ok(Prepared { library, objects })
}

/// Prints what is known of the program. The verdict is also the exit code.
fn check(args: &Args) -> anyhow::Result<Outcome> {
    let mut report = Report::new(&args.command[0].to_string_lossy());
    let refusal = match examine(args, &mut report) {
        Ok(()) => None,
        Err(error) => Some(error.downcast::<Refusal>()?),
    };
    refusal.iter().for_each(|refusal| report.refuse(refusal));
    match args.json {
        true => out::json(&report)?,
        false => out::text(&report.text(out::style()))?,
    }
    refusal.map_or(Ok(Outcome::Done), |refusal| Err(refusal.into()))
}

fn examine(args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let program = Program::find(&args.command[0])?;
    report.add_program(&program);
    let Prepared { library, objects } = prepare(&program, args.force)?;
    report.add_objects(&program, &library, &objects)
}
