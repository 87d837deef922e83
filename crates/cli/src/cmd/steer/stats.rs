//! `heddle steer stats`: counts, failures and cost of attachments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_metrics::{Cell, Mark, Table, human};
use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Stats};
use serde_json::{Value, json};

use super::attachments::AttachmentSelector;
use super::connect::open;
use super::live_sockets::LiveSockets;
use super::refused;
use super::{history, policy};
use crate::exit::Outcome;
use crate::{interrupt, out};

/// Options of `heddle steer stats`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle steer stats 1
  heddle steer stats --port 8000 --watch
  heddle steer stats --port 53,853 --protocol udp
  heddle steer stats 1 --watch --json | jq -c '{skew, ns_per_decision}'

Skew is the busiest executor's share divided by an even share: 1 is even. Inputs that the policy
chose for an executor with a closed socket go to another executor; but while the server has a
socket that is not an executor (a restarted worker), they go where the kernel would have sent
them: a failed select.
The cost of a decision, its enforcement included, is measured during the sample.")]
pub struct Args {
    #[command(flatten)]
    which: AttachmentSelector,
    /// Refresh each second, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// How long to measure the cost of decisions, 0 to 2000 ms. Meanwhile every BPF program on the machine
    /// reads the clock twice per run.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=2000))]
    sample: u32,
    /// Bypass the daemon, even if it runs (root only).
    #[arg(long)]
    direct: bool,
    /// Print a JSON object for each attachment; with --watch, one per line.
    #[arg(long)]
    json: bool,
}

/// Prints the counts.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let steering = open(args.direct)?;
    let selected = args.which.resolve(&steering)?;
    if args.watch {
        return watch(&args, &steering, selected);
    }
    for attachment in selected {
        let stats = stats_of(&steering, &attachment, args.sample)?;
        if args.json {
            out::json(&as_json(&attachment, &stats, None))?;
        } else {
            out::text(&table(&attachment, &stats, None).to_text(out::style()))?;
        }
    }
    Ok(Outcome::Done)
}

/// Returns an attachment's counts, its executors labelled with running processes.
fn stats_of(steering: &Steering, attachment: &Attachment, sample: u32) -> anyhow::Result<Stats> {
    let mut stats = steering.stats(attachment.id, sample).map_err(refused)?;
    LiveSockets::of(attachment).relabel(&mut stats);
    Ok(stats)
}

/// Counts and when they were read.
struct Sample {
    at: Instant,
    stats: Stats,
}

impl Sample {
    fn now(steering: &Steering, attachment: &Attachment, sample: u32) -> anyhow::Result<Self> {
        let stats = stats_of(steering, attachment, sample)?;
        Ok(Self { at: Instant::now(), stats })
    }

    /// Inputs per second for each executor since an earlier sample.
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

/// A watched attachment, and its last sample.
struct Watched {
    attachment: Attachment,
    before: Option<Sample>,
}

/// The result of refreshing a watched attachment.
enum Refresh {
    Active(String),
    Detached,
    /// It ended by itself; the reason.
    Ended(String),
}

impl Watched {
    fn refresh(&mut self, args: &Args, steering: &Steering) -> anyhow::Result<Refresh> {
        let Self { attachment, before } = self;
        let now = match Sample::now(steering, attachment, args.sample) {
            Ok(now) => now,
            Err(error) if before.is_none() => return Err(error),
            Err(_) => {
                let ended = history::note(steering, attachment.id);
                return Ok(ended.map_or(Refresh::Detached, Refresh::Ended));
            }
        };
        if now.stats.executors.iter().all(|executor| !executor.present) {
            // Listing removes dead attachments: the next refresh finds that it has ended.
            steering.list().map_err(refused)?;
        }
        let rates = before.as_ref().map(|before| now.rates(before));
        let text = match args.json {
            true => format!("{}\n", as_json(attachment, &now.stats, rates.as_deref())),
            false => table(attachment, &now.stats, rates.as_deref()).to_text(out::style()),
        };
        *before = Some(now);
        Ok(Refresh::Active(text))
    }
}

/// Refreshes all of them until they have ended. Fails if one ended by itself.
fn watch(args: &Args, steering: &Steering, selected: Vec<Attachment>) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    let is_live = out::is_terminal() && !args.json;
    let each = |attachment| Watched { attachment, before: None };
    let mut watched: Vec<Watched> = selected.into_iter().map(each).collect();
    let (mut drawn, mut ended) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let (mut text, mut left) = (String::new(), Vec::new());
        for mut one in watched {
            match one.refresh(args, steering)? {
                Refresh::Active(shown) => {
                    text += &shown;
                    left.push(one);
                }
                Refresh::Detached => eprintln!("Attachment {} was detached.", one.attachment.id),
                Refresh::Ended(why) => {
                    eprintln!("{why}");
                    ended += 1;
                }
            }
        }
        if left.is_empty() {
            break;
        }
        out::text(&redraw(&text, if is_live { drawn } else { 0 }))?;
        drawn = text.lines().count();
        let sampled = u64::from(args.sample) * left.len() as u64;
        watched = left;
        pause(&stop, Duration::from_millis(1000 - sampled.min(900)));
    }
    match ended {
        0 => Ok(Outcome::Done),
        _ => anyhow::bail!("{ended} of the watched attachments ended by themselves"),
    }
}

/// Prefixes `text` with the escapes that erase the `lines` above.
fn redraw(text: &str, lines: usize) -> String {
    if lines == 0 { text.into() } else { format!("\x1b[{lines}A\x1b[J{text}") }
}

fn pause(stop: &AtomicBool, time: Duration) {
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
    head.extend(rates.map(|_| "per second"));
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
        "{} decisions; failed selects {}; for closed sockets {}, given to others; left to the kernel {passed}; \
            no such executor {wrong_index}; dropped {dropped}",
        stats.decisions(),
        stats.failed(),
        stats.moved(),
    )];
    let mut now = Vec::new();
    now.extend(stats.skew().map(|skew| format!("skew {skew:.2}")));
    now.extend(stats.per_second.map(|rate| human(rate, "1/s")));
    now.extend(stats.ns_per_decision.map(|ns| format!("{ns:.0} ns per decision")));
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
    fn rates_are_differences_over_time() {
        let begin = Instant::now();
        let before = Sample { at: begin, stats: stats(10) };
        let now = Sample { at: begin + Duration::from_secs(2), stats: stats(30) };
        assert_eq!(now.rates(&before), [0.0, 10.0, 20.0]);
    }

    #[test]
    fn a_table_replaces_the_previous_one() {
        assert_eq!(redraw("a\nb\n", 0), "a\nb\n");
        assert_eq!(redraw("a\nb\n", 2), "\x1b[2A\x1b[Ja\nb\n");
    }
}
