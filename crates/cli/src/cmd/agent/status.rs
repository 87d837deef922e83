//! `heddle agent status`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_agent::guardian::{Enclaves, clean, cleaned};
use serde_json::json;

use super::child;
use super::report::Shown;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle agent status`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent status
  heddle agent status lc --watch
  heddle agent status --json | jq '.enclaves[] | {name: .guardian.name, threads: .report.threads}'

Run as root it also removes what a guardian that was killed has left. The exit code is 1 where an enclave has no agent
or no guardian any more, for scripts that watch.")]
pub struct Args {
    /// Only this enclave.
    name: Option<String>,
    /// Stay, and show it anew each second, until Ctrl-C or the end of the enclave.
    #[arg(long)]
    watch: bool,
    /// Print one JSON object instead of text; with --watch one a line.
    #[arg(long)]
    json: bool,
}

/// Shows enclaves.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.watch {
        let shown = look(&args)?;
        match args.json {
            true => out::json(&json!({ "schema": 1, "enclaves": shown }))?,
            false => out::text(&text(&shown))?,
        }
        let lost: Vec<String> = shown.iter().filter_map(Shown::lost).collect();
        anyhow::ensure!(lost.is_empty(), "{}", lost.join("; "));
        return Ok(Outcome::Done);
    }
    watch(&args)
}

/// The enclaves that were asked for, after what the dead left is gone.
fn look(args: &Args) -> anyhow::Result<Vec<Shown>> {
    let enclaves = Enclaves::here();
    for done in clean(&enclaves, child::backends()) {
        eprintln!("heddle: {}", cleaned(&done));
    }
    let all = enclaves.look().map_err(|error| {
        anyhow::anyhow!("{error}; enclaves are shown to their user, which is root as a rule")
    })?;
    let wanted = |name: &str| args.name.as_ref().is_none_or(|wanted| wanted == name);
    let shown: Vec<Shown> =
        all.iter().filter(|listed| wanted(&listed.record.name)).map(Shown::of).collect();
    match &args.name {
        Some(name) if shown.is_empty() => {
            let names: Vec<String> = all.into_iter().map(|listed| listed.record.name).collect();
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            anyhow::bail!("there is no enclave `{name}`; there are: {there}")
        }
        _ => Ok(shown),
    }
}

fn text(shown: &[Shown]) -> String {
    match shown {
        [] => "There are no enclaves.\n".into(),
        shown => shown.iter().map(|one| one.text(out::style())).collect::<Vec<_>>().join("\n"),
    }
}

fn watch(args: &Args) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let redraw = out::is_terminal();
    let (mut drawn, mut seen) = (0, false);
    while !stop.load(Ordering::Relaxed) {
        let shown = match look(args) {
            Ok(shown) => shown,
            Err(error) if !seen => return Err(error),
            Err(_) => {
                eprintln!("The enclave has ended.");
                return Ok(Outcome::Done);
            }
        };
        seen = true;
        if args.json {
            out::text(&format!("{}\n", json!({ "schema": 1, "enclaves": shown })))?;
        } else {
            let text = text(&shown);
            let back =
                if redraw && drawn > 0 { format!("\x1b[{drawn}A\x1b[J") } else { String::new() };
            out::text(&format!("{back}{text}"))?;
            drawn = text.lines().count();
        }
        rest(&stop);
    }
    Ok(Outcome::Done)
}

/// A second, or less if there is reason.
fn rest(stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20));
    }
}
