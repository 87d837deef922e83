//! `heddle agent status`: shows enclaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_agent::guardian::{Enclaves, clean, cleaned};
use serde_json::json;

use super::child;
use super::report::EnclaveView;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle agent status`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle agent status
  heddle agent status lc --watch
  heddle agent status --json | jq '.enclaves[] | {name: .guardian.name, threads: .report.threads}'

As root it also removes what killed guardians left behind. The exit code is 1 if an enclave has
lost its agent or its guardian, for scripts that watch.")]
pub struct Args {
    /// Only this enclave.
    name: Option<String>,
    /// Refresh each second, until Ctrl-C or the end of the enclave.
    #[arg(long)]
    watch: bool,
    /// Print one JSON object instead of text; with --watch, one per line.
    #[arg(long)]
    json: bool,
}

/// Shows enclaves.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.watch {
        let shown = read(&args)?;
        match args.json {
            true => out::json(&json!({ "schema": 1, "enclaves": shown }))?,
            false => out::text(&text(&shown))?,
        }
        let lost: Vec<String> = shown.iter().filter_map(EnclaveView::lost).collect();
        anyhow::ensure!(lost.is_empty(), "{}", lost.join("; "));
        return Ok(Outcome::Done);
    }
    watch(&args)
}

/// Cleans up after dead guardians, and returns the selected enclaves.
fn read(args: &Args) -> anyhow::Result<Vec<EnclaveView>> {
    let enclaves = Enclaves::here();
    for done in clean(&enclaves, child::backends()) {
        eprintln!("heddle: {}", cleaned(&done));
    }
    let all = enclaves.try_list().map_err(|error| {
        anyhow::anyhow!("{error}; only the enclaves' owner can see them, usually root")
    })?;
    let wanted = |name: &str| args.name.as_ref().is_none_or(|wanted| wanted == name);
    let shown: Vec<EnclaveView> =
        all.iter().filter(|listed| wanted(&listed.record.name)).map(EnclaveView::of).collect();
    match &args.name {
        Some(name) if shown.is_empty() => {
            let names: Vec<String> = all.into_iter().map(|listed| listed.record.name).collect();
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            anyhow::bail!("there is no enclave `{name}`; there are: {there}")
        }
        _ => Ok(shown),
    }
}

fn text(shown: &[EnclaveView]) -> String {
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
        let shown = match read(args) {
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
        pause(&stop);
    }
    Ok(Outcome::Done)
}

/// Waits a second, or until `stop` is set.
fn pause(stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20));
    }
}
