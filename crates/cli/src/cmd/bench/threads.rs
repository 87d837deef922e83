//! `heddle bench threads`: the cost of basic thread operations, in Heddle and in what it would replace.

use std::io::{IsTerminal, stderr, stdin};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use heddle_bench::threads::{
    self, METRIC, Op, Options, PAPER, System, child, dispatch, preemption,
};
use heddle_core::Ns;
use heddle_metrics::{BarChart, Progress, Report, Results, Row, tables};

use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle bench threads`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle bench threads
  heddle bench threads --systems heddle,tokio,go --rounds 9 --json > threads.json
  heddle bench threads --report threads.html

The peers in C, C++ and Go are compiled on the spot if gcc, g++ with libboost-fiber-dev and go are
installed. Missing ones are reported before measuring, with how to install them, and listed below
the table; on a terminal the command offers to install them, and --install-peers does so with
apt-get (in a checkout: scripts/setup --bench).
Exit code 3 if an installed system could not be measured; 130 after Ctrl-C, which prints what was
measured so far.")]
pub struct Args {
    /// The systems to compare (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Processes per figure; the figure is their median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Workers, each on its own CPU; more than one only for heddle and tokio-mt.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Run one short round: a check that it works, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// Install missing peers with apt-get, without asking.
    #[arg(long)]
    install_peers: bool,
    /// Print the results as one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Also write an HTML report to this file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    report: Option<PathBuf>,
    /// Measure one operation in this process and print its cost; used by the runner.
    #[arg(long, hide = true, num_args = 3, value_names = ["SYSTEM", "OP", "MS"])]
    child: Option<Vec<String>>,
}

/// Measures and reports; as a child, measures once and prints a number.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some(child) = &args.child {
        return run_child(child, args.workers as usize);
    }
    offer_peers(&args)?;
    let stop = interrupt::flag()?;
    let rows = measure(&args, &stop)?;
    let verdict = threads::verdict(&rows);
    let failed = rows.iter().any(threads::is_failure);
    let results = Results::here(rows);
    if cfg!(debug_assertions) {
        eprintln!(
            "heddle: this is a debug build; do not quote these figures (cargo build --release)"
        );
    }
    if let Some(path) = &args.report {
        report(&results, &verdict, path)?;
    }
    if args.json {
        out::text(&format!("{}\n", results.to_json()))?;
    } else {
        out::text(&table(&results, &verdict, args.workers))?;
    }
    Ok(match (stop.load(Relaxed), failed) {
        (true, _) => Outcome::Interrupted,
        (false, true) => Outcome::Invalid,
        (false, false) => Outcome::Done,
    })
}

/// Reports missing peers, and installs them if requested or confirmed.
fn offer_peers(args: &Args) -> anyhow::Result<()> {
    let wanted: Vec<System> =
        args.systems.iter().copied().filter(|s| args.workers == 1 || s.scales()).collect();
    let missing = threads::missing_peers(&wanted);
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("{}", threads::offer(&missing));
    if args.install_peers {
        return threads::install(&missing).map_err(anyhow::Error::msg);
    }
    if confirmed()? {
        // Measuring without them is still useful.
        threads::install(&missing).unwrap_or_else(|why| eprintln!("heddle: {why}"));
    }
    Ok(())
}

/// Asks for confirmation on a terminal.
fn confirmed() -> anyhow::Result<bool> {
    if !(stdin().is_terminal() && stderr().is_terminal()) {
        return Ok(false);
    }
    eprint!("Install now? [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn measure(args: &Args, stop: &AtomicBool) -> anyhow::Result<Vec<Row>> {
    let options = Options {
        systems: args.systems.clone(),
        rounds: if args.quick { 1 } else { args.rounds },
        budget: Ns::from_ms(if args.quick { 20 } else { 200 }),
        workers: args.workers as usize,
        // This very program, even if its file is replaced in the meantime.
        program: PathBuf::from("/proc/self/exe"),
    };
    let mut progress = Progress::new("bench threads", options.steps());
    let rows = threads::run(&options, |step| {
        progress.step(step);
        !stop.load(Relaxed)
    })
    .context("no folder for the compiled peers; set TMPDIR")?;
    progress.finish("measured");
    Ok(rows)
}

fn run_child(words: &[String], workers: usize) -> anyhow::Result<Outcome> {
    let [system, op, budget] = words else { unreachable!("clap takes three values") };
    let usage = |why: String| anyhow::Error::new(Usage(why));
    let system: System = system.parse().map_err(usage)?;
    let ms: u64 = budget.parse().context("MS is a whole number of milliseconds")?;
    if (system, op.as_str()) == (System::Heddle, preemption::CHILD_OP) {
        let costs = child::preemption::measure(Ns::from_ms(ms));
        out::text(&format!("{:.1} {:.1} {:.1}\n", costs.each, costs.late_p99, costs.late_max))?;
        return Ok(Outcome::Done);
    }
    if let Some(way) = dispatch::CHILD_OPS.iter().position(|name| name == op) {
        let line = match child::dispatch::measure(way == 1, Ns::from_ms(ms)) {
            Ok(ns) => format!("{} {} {} {}", ns.yielding, ns.waking, ns.late_20us, ns.late_5ms),
            Err(why) => why,
        };
        out::text(&format!("{line}\n"))?;
        return Ok(Outcome::Done);
    }
    let op: Op = op.parse().map_err(usage)?;
    let ns = child::measure(system, op, Ns::from_ms(ms), workers)
        .with_context(|| format!("{system} has no {op} in this program"))?;
    out::text(&format!("{ns:.3}\n"))?;
    Ok(Outcome::Done)
}

fn table(results: &Results, verdict: &str, workers: u32) -> String {
    let section = |metric: &str, title: &str| -> String {
        let tables = tables(&results.with_metrics(&[metric])).into_iter();
        tables
            .map(|mut table| {
                table.title = title.to_owned();
                table.to_text(out::style())
            })
            .collect()
    };
    let on = if workers == 1 { "one worker".into() } else { format!("{workers} workers") };
    let mut text = section(METRIC, &format!("CPU time per operation, {on}"));
    if workers == 1 {
        text += &format!("  {PAPER}\n");
        text += &section(preemption::METRIC, "Cost of a preemption by a signal, one worker");
        text += &format!("  {}\n", preemption::PAPER);
        text +=
            &section(dispatch::METRIC, "From one task of a central policy to the next, one worker");
        text += &format!("  {}\n", dispatch::PAPER);
    }
    text += &format!("{verdict}\n");
    text + &format!("Measured on {}.\n", results.machine.summary())
}

fn report(results: &Results, verdict: &str, path: &Path) -> anyhow::Result<()> {
    Report::new("Operations of threads")
        .findings(verdict.split("; ").map(str::to_owned))
        .bars(BarChart::of(results, METRIC, "CPU time per operation"))
        .notes(PAPER)
        .notes(preemption::PAPER)
        .notes(dispatch::PAPER)
        .notes("One worker pinned to one CPU; CPU time of the whole process; each figure is the median of \
            processes that ran interleaved with the other systems.")
        .results(results.clone())
        .write(path)?;
    Ok(())
}
