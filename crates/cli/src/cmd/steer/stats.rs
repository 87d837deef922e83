//! `heddle stats`: how attachments do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_metrics::{Cell, Mark, Table, human};
use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Stats};
use serde_json::{Value, json};

use super::connect::open;
use super::living::Living;
use super::refused;
use super::which::Which;
use super::{ended, policy};
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle stats`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle stats 1
  heddle stats --port 8000 --watch
  heddle stats --port 53,853 --protocol udp
  heddle stats 1 --watch --json | jq -c '{skew, ns_per_decision}'

Skew is the share of the busiest executor against an even one: 1 is even. What the policy chose for
an executor whose socket is closed goes to another. While the server has a socket that is no executor
(a worker that restarted), it goes where the kernel would have sent it: a failed select. What a
decision costs is measured during the sample, enforcing it included.")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Show it again each second until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// For how many milliseconds to measure what decisions cost, 0 to 2000. Meanwhile every BPF program of
    /// the machine pays for two readings of the clock a run.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=2000))]
    sample: u32,
    /// Do not ask the daemon, even if it runs: for root.
    #[arg(long)]
    direct: bool,
    /// Print a JSON object for each attachment; with --watch one a line.
    #[arg(long)]
    json: bool,
}

/// Shows.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let steering = open(args.direct)?;
    let meant = args.which.all(&steering)?;
    if args.watch {
        return watch(&args, &steering, meant);
    }
    for attachment in meant {
        let stats = stats_of(&steering, &attachment, args.sample)?;
        if args.json {
            out::json(&as_json(&attachment, &stats, None))?;
        } else {
            out::text(&table(&attachment, &stats, None).to_text(out::style()))?;
        }
    }
    Ok(Outcome::Done)
}

/// How an attachment does, its executors named after processes that live.
fn stats_of(steering: &Steering, attachment: &Attachment, sample: u32) -> anyhow::Result<Stats> {
    let mut stats = steering.stats(attachment.id, sample).map_err(refused)?;
    Living::of(attachment).rename(&mut stats);
    Ok(stats)
}

/// The counts of a moment.
struct Moment {
    at: Instant,
    stats: Stats,
}

impl Moment {
    fn now(steering: &Steering, attachment: &Attachment, sample: u32) -> anyhow::Result<Self> {
        let stats = stats_of(steering, attachment, sample)?;
        Ok(Self { at: Instant::now(), stats })
    }

    /// Inputs a second for each executor, since an earlier moment.
    fn rates(&self, before: &Self) -> Vec<f64> {
        let seconds = (self.at - before.at).as_secs_f64();
        let earlier = |index: usize| before.stats.executors.get(index).map_or(0, |e| e.selected);
        let rate = |(index, selected): (usize, u64)| {
            #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
            let inputs = selected.saturating_sub(earlier(index)) as f64;
            inputs / seconds
        };
        self.stats.executors.iter().map(|e| e.selected).enumerate().map(rate).collect()
    }
}

/// An attachment that is watched, and what was last seen of it.
struct Watched {
    attachment: Attachment,
    before: Option<Moment>,
}

/// What a look at an attachment finds.
enum Look {
    Shown(String),
    Detached,
    /// It has ended by itself; why.
    Ended(String),
}

impl Watched {
    fn look(&mut self, args: &Args, steering: &Steering) -> anyhow::Result<Look> {
        let Self { attachment, before } = self;
        let now = match Moment::now(steering, attachment, args.sample) {
            Ok(now) => now,
            Err(error) if before.is_none() => return Err(error),
            Err(_) => {
                let ended = ended::note(steering, attachment.id);
                return Ok(ended.map_or(Look::Detached, Look::Ended));
            }
        };
        if now.stats.executors.iter().all(|executor| !executor.present) {
            // Whoever lists removes what is dead: the next look finds that it has ended.
            steering.list().map_err(refused)?;
        }
        let rates = before.as_ref().map(|before| now.rates(before));
        let text = match args.json {
            true => format!("{}\n", as_json(attachment, &now.stats, rates.as_deref())),
            false => table(attachment, &now.stats, rates.as_deref()).to_text(out::style()),
        };
        *before = Some(now);
        Ok(Look::Shown(text))
    }
}

/// Shows all of them, again and again, until they have ended. It fails if one ended by itself.
fn watch(args: &Args, steering: &Steering, meant: Vec<Attachment>) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let redraw = out::is_terminal() && !args.json;
    let each = |attachment| Watched { attachment, before: None };
    let mut watched: Vec<Watched> = meant.into_iter().map(each).collect();
    let (mut drawn, mut ended) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let (mut text, mut left) = (String::new(), Vec::new());
        for mut one in watched {
            match one.look(args, steering)? {
                Look::Shown(shown) => {
                    text += &shown;
                    left.push(one);
                }
                Look::Detached => eprintln!("Attachment {} was detached.", one.attachment.id),
                Look::Ended(why) => {
                    eprintln!("{why}");
                    ended += 1;
                }
            }
        }
        if left.is_empty() {
            break;
        }
        out::text(&over(&text, if redraw { drawn } else { 0 }))?;
        drawn = text.lines().count();
        let sampled = u64::from(args.sample) * left.len() as u64;
        watched = left;
        rest(&stop, Duration::from_millis(1000 - sampled.min(900)));
    }
    match ended {
        0 => Ok(Outcome::Done),
        _ => anyhow::bail!("what was watched has ended by itself"),
    }
}

/// `text` in the place of the `lines` above.
fn over(text: &str, lines: usize) -> String {
    if lines == 0 { text.into() } else { format!("\x1b[{lines}A\x1b[J{text}") }
}

fn rest(stop: &AtomicBool, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20));
    }
}

fn as_json(attachment: &Attachment, stats: &Stats, rates: Option<&[f64]>) -> Value {
    json!({
        "schema": 1,
        "id": attachment.id,
        "policy": attachment.policy,
        "parameters": attachment.parameters,
        "status": attachment.status,
        "decisions": stats.decisions(),
        "failed": stats.failed(),
        "moved": stats.moved(),
        "passed": stats.passed,
        "wrong_index": stats.wrong_index,
        "dropped": stats.dropped,
        "skew": stats.skew(),
        "per_second": stats.per_second,
        "ns_per_decision": stats.ns_per_decision,
        "executors": stats.executors,
        "executors_per_second": rates,
    })
}

fn table(attachment: &Attachment, stats: &Stats, rates: Option<&[f64]>) -> Table {
    let Attachment { id, protocol, address, .. } = attachment;
    let policy = policy::display(&attachment.policy, &attachment.parameters);
    let mut head = vec!["executor", "is", "chosen", "share", "failed"];
    head.extend(rates.map(|_| "a second"));
    let mut table = Table::new(format!("Attachment {id}: {policy} at {protocol} {address}"), head);
    let all: u64 = stats.executors.iter().map(|e| e.selected).sum();
    for (at, one) in stats.executors.iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "a share for people")]
        let share = if all == 0 { 0.0 } else { one.selected as f64 * 100.0 / all as f64 };
        let label = if one.present { one.label.clone() } else { format!("{} (gone)", one.label) };
        let label = Cell::text(label);
        let failed = Cell::number(one.failed.to_string());
        let mut row = vec![
            Cell::number(one.index.to_string()),
            if one.present { label } else { label.marked(Mark::Bad) },
            Cell::number(one.selected.to_string()),
            Cell::number(format!("{share:.1} %")),
            if one.failed == 0 { failed } else { failed.marked(Mark::Bad) },
        ];
        row.extend(
            rates.and_then(|rates| rates.get(at)).map(|rate| Cell::number(format!("{rate:.0}"))),
        );
        table.push(row);
    }
    table.notes = notes(attachment, stats);
    table
}

fn notes(attachment: &Attachment, stats: &Stats) -> Vec<String> {
    use heddle_steer::request::Status;
    let Stats { passed, wrong_index, dropped, .. } = stats;
    let mut notes = vec![format!(
        "{} decisions; failed selects {}; for closed sockets {}, given to others; left to the kernel {passed}; no such executor {wrong_index}; dropped {dropped}",
        stats.decisions(),
        stats.failed(),
        stats.moved(),
    )];
    let mut now = Vec::new();
    now.extend(stats.skew().map(|skew| format!("skew {skew:.2}")));
    now.extend(stats.per_second.map(|rate| human(rate, "1/s")));
    now.extend(stats.ns_per_decision.map(|ns| format!("{ns:.0} ns a decision")));
    if !now.is_empty() {
        notes.push(now.join("; "));
    }
    if let Status::Evicted(why) = &attachment.status {
        notes.push(format!("evicted, the kernel decides: {why}"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use heddle_steer::request::ExecutorStats;

    use super::*;

    fn stats(selected: u64) -> Stats {
        let one = |index| ExecutorStats {
            index,
            label: format!("pid {index}"),
            selected: selected * u64::from(index),
            failed: 0,
            moved: 0,
            socket: 0,
            present: index > 0,
        };
        Stats {
            executors: (0..3).map(one).collect(),
            passed: 0,
            wrong_index: 0,
            dropped: 0,
            per_second: None,
            ns_per_decision: None,
        }
    }

    #[test]
    fn rates_are_differences_by_time() {
        let begin = Instant::now();
        let before = Moment { at: begin, stats: stats(10) };
        let now = Moment { at: begin + Duration::from_secs(2), stats: stats(30) };
        assert_eq!(now.rates(&before), [0.0, 10.0, 20.0]);
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        assert_eq!(over("a\nb\n", 0), "a\nb\n");
        assert_eq!(over("a\nb\n", 2), "\x1b[2A\x1b[Ja\nb\n");
    }
}
