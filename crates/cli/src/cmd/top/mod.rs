//! `heddle top`: a row for each service, with the same columns whatever schedules it.

mod app;
mod lanes;
mod read;
mod reading;
mod row;
mod share;
#[cfg(test)]
mod tests;
mod view;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use heddle_core::Ns;
use heddle_metrics::{Cell, Table};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::app::{App, Wish};
use self::read::Sources;
use self::row::{COLUMNS, Interval};
use crate::cmd::share::Site;
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// How long the screen waits for a key before it looks whether to end.
const GLANCE: Duration = Duration::from_millis(100);

/// Options of `heddle top`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle top
  sudo heddle top --port 8000 --pid 4711
  heddle top --once
  heddle top --json --interval 5s | jq -c '.services[] | {name, rate, wait_p99_ns}'

A row is a Heddle runtime or an event queue of a program, a Go program built by `heddle go`, a
server under a steering policy, an enclave of an agent, a share of CPUs, or a process that is
named. Rates count inputs: requests, events, decisions, commits, hand-overs of CPUs, or turns of
tasks. The run-queue delay is the 99th percentile as root and a mean (~) otherwise. Enter shows a
service's executors and threads, and as root who ran while they waited.")]
pub struct Args {
    /// Show this process with its descendants, too; may be repeated.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Show the processes that serve this port, too; may be repeated.
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,
    /// Show the share that this file describes, whose broker listens at a place of its own; may be repeated.
    #[arg(long, value_name = "FILE")]
    share: Vec<PathBuf>,
    /// How long an interval is.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one interval and end.
    #[arg(long)]
    once: bool,
    /// Print each interval as a JSON object, one per line.
    #[arg(long)]
    json: bool,
}

/// Parses an interval from 100 ms to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    let time: Option<Ns> = text.parse().ok();
    let time = time.filter(|time| (Ns::from_ms(100)..=Ns::from_secs(3600)).contains(time));
    let time = time.ok_or_else(|| format!("`{text}` is not a duration from 100ms to 3600s"))?;
    Ok(Duration::from_nanos(time.0))
}

/// Shows the services.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let socket = |file: &PathBuf| Site::of(file).map(|site| site.own);
    let shares: Result<Vec<PathBuf>, _> = args.share.iter().map(socket).collect();
    let shares = shares.map_err(|error| Usage(error.to_string()))?;
    let mut sources = Sources::open(&args.pid, &args.port, shares)?;
    if args.once || args.json || !out::is_terminal() {
        return print(&args, &mut sources, &stop);
    }
    let mut terminal = ratatui::try_init().context("cannot use this terminal; try --once")?;
    let shown = show(&args, &mut sources, &stop, &mut terminal);
    ratatui::restore();
    shown
}

/// Prints intervals until Ctrl-C, or one.
fn print(args: &Args, sources: &mut Sources, stop: &AtomicBool) -> anyhow::Result<Outcome> {
    let mut before = sources.read();
    loop {
        pause(args.interval, stop);
        if stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Interrupted);
        }
        let now = sources.read();
        let mut interval = Interval::between(&before, &now);
        app::sort(&mut interval.services, None);
        match (args.json, args.once) {
            (true, true) => out::json(&interval)?,
            (true, false) => out::text(&format!("{}\n", serde_json::to_string(&interval)?))?,
            (false, _) => out::text(&table(&interval).to_text(out::style()))?,
        }
        if args.once {
            return Ok(Outcome::Done);
        }
        before = now;
    }
}

fn pause(interval: Duration, stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < interval && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20).min(interval.saturating_sub(begin.elapsed())));
    }
}

/// Returns the services as a table for people.
fn table(interval: &Interval) -> Table {
    let mut table = Table::new("", ["service", "kind", "policy"].into_iter().chain(COLUMNS));
    for row in &interval.services {
        let texts = [row.name.clone(), row.kind.name().into(), row.policy.clone()];
        let figures = row.figures.cells().map(Cell::number);
        table.push(texts.map(Cell::text).into_iter().chain(figures).collect::<Vec<_>>());
    }
    if interval.services.is_empty() {
        table.notes.push("no service; name one with --pid or --port".into());
    }
    table
        .notes
        .extend(interval.missing.iter().map(|why| format!("missing: {}", out::printable(why))));
    table
}

/// Shows the screen until a key ends it.
fn show(
    args: &Args,
    sources: &mut Sources,
    stop: &AtomicBool,
    terminal: &mut ratatui::DefaultTerminal,
) -> anyhow::Result<Outcome> {
    let (mut app, mut before, mut begin) = (App::default(), sources.read(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        terminal.draw(|frame| view::draw(frame, &app))?;
        if event::poll(GLANCE.min(args.interval.saturating_sub(begin.elapsed())))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match app.key(key) {
                Wish::Nothing => {}
                Wish::Quit => return Ok(Outcome::Done),
                Wish::Interrupt => return Ok(Outcome::Interrupted),
            }
        }
        if begin.elapsed() >= args.interval {
            let now = sources.read();
            app.update(Interval::between(&before, &now));
            (before, begin) = (now, Instant::now());
        }
    }
    Ok(Outcome::Interrupted)
}
