//! `heddle share top`: what part of each CPU each application has, in each interval.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_core::Ns;

use super::site::Site;
use super::view;
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle share top`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle share top share.toml
  heddle share top share.toml --interval 200ms --count 10 > top.txt")]
pub struct Args {
    /// The file that describes the share.
    file: PathBuf,
    /// How long an interval is.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after so many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Parses an interval of 100 ms or more: the broker answers only so often.
fn interval(text: &str) -> Result<Duration, String> {
    let time: Option<Ns> = text.parse().ok();
    let time = time.filter(|time| (Ns::from_ms(100)..=Ns::from_ms(3_600_000)).contains(time));
    let time = time.ok_or_else(|| format!("`{text}` is not a duration from 100ms to 3600s"))?;
    Ok(Duration::from_nanos(time.0))
}

/// Shows a share until Ctrl-C.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let redraw = out::is_terminal();
    let site = Site::of(&args.file)?;
    let (mut before, mut read_at) = (site.report()?, Instant::now());
    let mut drawn = 0;
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        pause(args.interval, &stop);
        if stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Interrupted);
        }
        let now = site.report()?;
        let elapsed = read_at.elapsed();
        read_at = Instant::now();
        let text = view::top(&before, &now, elapsed, out::style());
        let back = if redraw && drawn > 0 { format!("\x1b[{drawn}A\x1b[J") } else { String::new() };
        let end = if redraw { "" } else { "\n" };
        out::text(&format!("{back}{text}{end}"))?;
        drawn = text.lines().count();
        before = now;
    }
    Ok(Outcome::Done)
}

/// Waits for the interval, or until `stop` is set.
fn pause(interval: Duration, stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < interval && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20).min(interval.saturating_sub(begin.elapsed())));
    }
}
