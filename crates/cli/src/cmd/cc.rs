//! `heddle cc` and `heddle c++`: the user's clang, with the pass that inserts preemption probes.
//!
//! The command becomes clang, so that its exit code, its signals and its output are clang's. What clang cannot compile
//! with probes is refused before that with exit code 2.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use heddle_metrics::{Cell, Mark, Table};
use heddle_probes::check::{self, Compiler};
use heddle_probes::report::{self, Function, WithoutProbes};
use heddle_probes::shims::{self, Shim};
use heddle_probes::toolchain::Language;
use heddle_probes::{Error, cc};
use serde::Serialize;

use crate::exit::{Outcome, Usage};
use crate::out;

/// Options of `heddle cc` and `heddle c++`. They are ours only where they come first.
#[derive(clap::Args)]
#[command(
    override_usage = "\
heddle cc [PASS OPTIONS] CLANG ARGUMENTS...
       heddle cc --check [--json]
       heddle cc --report [--json] FILE...",
    after_help = "\
Examples:
  heddle cc -O2 -o server server.c && heddle run ./server
  make CC='heddle cc' CXX='heddle c++'
  heddle cc --heddle-report=probes.jsonl -O2 -c hot.c && heddle cc --report probes.jsonl
  heddle cc --check
  heddle cc -- --help

Runs clang 14 to 22: that in PATH, or HEDDLE_CLANG=/usr/bin/clang-22. All other arguments are
clang's, and after a leading -- those too that look like ours. For CMake, --check prints the path
of a compiler named heddle-cc. The pass is built on first use, in HEDDLE_CACHE_DIR or in heddle in
the user's cache; that needs LLVM's headers (Debian: llvm-22-dev).

Options of the pass, anywhere among the arguments:
  --heddle-report[=FILE]                 append what was done to each function to FILE, or to
                                         heddle-report.jsonl
  --heddle-placement=bounded|naive|none  where probes are
  --heddle-check=clock|flag              what a probe looks at
  --heddle-period=N                      units of cost between probes, 50 to 1000000
For a whole build: HEDDLE_PROBES=placement=bounded,check=clock,period=N,report=/PATH

Not supported: -fsanitize, -m32, other targets than x86_64 Linux. The exit code is clang's, or 2
if clang was not started; then one sentence says why."
)]
pub struct Args {
    /// List this machine's compilers, and whether they can compile with probes.
    #[arg(long, conflicts_with = "report")]
    check: bool,
    /// Show what the pass wrote to files of --heddle-report, the largest gap between probes first.
    #[arg(long)]
    report: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Options of the pass and of clang, and files.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Becomes clang, or prints what was asked for.
pub fn run(language: Language, mut args: Args) -> anyhow::Result<Outcome> {
    if args.check || args.report {
        // Options after the first argument are among the arguments.
        let before = args.arguments.len();
        args.arguments.retain(|argument| argument != "--json");
        args.json |= args.arguments.len() < before;
    }
    match (args.check, args.report) {
        (true, _) => print_compilers(&check::default_clang(), args.json),
        (_, true) => print_report(&args.arguments, args.json),
        _ if args.json => {
            Err(Usage("--json is for --check and --report (see heddle cc --help)".into()).into())
        }
        _ => start(language, args.arguments),
    }
}

/// Becomes clang.
pub fn start(language: Language, arguments: Vec<OsString>) -> anyhow::Result<Outcome> {
    let mut command = cc::command(language, arguments).map_err(refusal)?;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

/// Converts what is not supported to wrong usage, and leaves failures as they are.
pub fn refusal(error: Error) -> anyhow::Error {
    match error.is_usage() {
        true => Usage(error.to_string()).into(),
        false => error.into(),
    }
}

#[derive(Serialize)]
struct Compilers {
    schema: u32,
    /// A compiler for build systems that want a path.
    cc: String,
    compilers: Vec<Compiler>,
}

/// Prints the compilers. The exit code says whether `needed` is supported.
pub fn print_compilers(needed: &Compiler, json: bool) -> anyhow::Result<Outcome> {
    let compilers = check::compilers();
    let folder = shims::install(None).map_err(refusal)?;
    let cc = folder.join(Shim::Clang(Language::C).name()).to_string_lossy().into_owned();
    if json {
        out::json(&Compilers { schema: 1, cc, compilers })?;
    } else {
        out::text(&compiler_table(&compilers, &cc).to_text(out::style()))?;
    }
    match &needed.reason {
        None => Ok(Outcome::Done),
        Some(reason) => Err(Usage(reason.clone()).into()),
    }
}

fn compiler_table(compilers: &[Compiler], cc: &str) -> Table {
    let mut table = Table::new("", ["compiler", "path", "version", "llvm", "probes"]);
    for compiler in compilers {
        let Compiler { name, path, version, llvm, supported, .. } = compiler;
        let (state, mark) = match supported {
            true => ("yes", Mark::Good),
            false => ("no", Mark::Bad),
        };
        let path = path.as_ref().map(|path| path.display().to_string());
        table.push(vec![
            Cell::text(name),
            Cell::text(path.unwrap_or_default()),
            Cell::text(version.clone().unwrap_or_default()),
            Cell::number(llvm.map(|major| major.to_string()).unwrap_or_default()),
            Cell::text(state).marked(mark),
        ]);
    }
    let reasons =
        compilers.iter().filter_map(|compiler| Some((compiler, compiler.reason.as_ref()?)));
    table.notes.extend(reasons.map(|(compiler, reason)| format!("{}: {reason}.", compiler.name)));
    table
        .notes
        .push(format!("For CMake and others that want a path: {cc}, and heddle-c++ beside it."));
    table
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    functions: Vec<Function>,
    without_probes: Vec<WithoutProbes>,
}

fn print_report(files: &[OsString], json: bool) -> anyhow::Result<Outcome> {
    if files.is_empty() {
        return Err(Usage("--report needs the files that --heddle-report wrote".into()).into());
    }
    let functions = report::read(files).map_err(refusal)?;
    let without_probes = report::without_probes(&functions);
    if json {
        out::json(&Report { schema: 1, functions, without_probes })?;
        return Ok(Outcome::Done);
    }
    out::text(&function_table(&functions).to_text(out::style()))?;
    if !without_probes.is_empty() {
        out::text("\n")?;
        out::text(&without_table(&without_probes).to_text(out::style()))?;
    }
    Ok(Outcome::Done)
}

fn function_table(functions: &[Function]) -> Table {
    let head =
        ["function", "module", "gap", "loops", "bounded", "split", "latch", "calls", "skipped"];
    let mut table = Table::new("", head);
    for function in functions {
        let Function {
            function, module, loops, bounded, split, latch, calls, gap, skipped, ..
        } = function;
        let mut row = vec![Cell::text(function), Cell::text(module)];
        let counts = [gap, loops, bounded, split, latch, calls];
        row.extend(counts.map(|count| Cell::number(count.to_string())));
        row.push(Cell::text(skipped.clone().unwrap_or_default()));
        table.push(row);
    }
    table.notes.push(
        "gap: the estimated longest work between two probes, in units of cost of about a cycle. Loops are bounded \
         (too short to need a probe), split (none inside) or have one at each latch."
            .into(),
    );
    table
}

fn without_table(functions: &[WithoutProbes]) -> Table {
    let mut table = Table::new("", ["called, without probes", "callers", "one of them"]);
    for WithoutProbes { function, callers, caller } in functions {
        let callers = Cell::number(callers.to_string());
        table.push(vec![Cell::text(function), callers, Cell::text(caller)]);
    }
    table.notes.push(
        "The C library, precompiled libraries and what was compiled without a report. A task that computes there is \
         preempted by a signal, 100 us after its quantum at the earliest."
            .into(),
    );
    table
}
