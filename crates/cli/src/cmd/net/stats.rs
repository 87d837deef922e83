//! `heddle net stats`: what lanes have counted.

use std::collections::BTreeMap;

use heddle_metrics::{Cell, Table};
use serde_json::{Value, json};

use super::which::{Which, no_process, title};
use crate::exit::Outcome;
use crate::out;
use crate::sources::lanes::Answer;
use crate::sources::lanes::record::{Counters, Record};

/// Options of `heddle net stats`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle net stats
  heddle net stats server --all
  heddle net stats --json | jq '.processes[].counters[] | select(.of == \"losses\")'

packets, losses and tcp are counted by each lane; xdp by the program at the interface, control by
the thread that follows the kernel's routes and neighbours. docs/net.md explains each counter.")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Show counters that are zero, too.
    #[arg(short, long)]
    all: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// Lanes that have a column; with more, only sums are shown.
const COLUMNS: usize = 8;

/// Shows counters.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (answers, silent) = args.which.ask("counters")?;
    if args.json {
        let processes: Vec<Value> = answers.iter().map(as_json).collect();
        out::json(&json!({ "schema": 1, "processes": processes, "silent": silent }))?;
        return Ok(Outcome::Done);
    }
    let tables = answers.iter().map(|answer| table(answer, args.all).to_text(out::style()));
    let mut text = tables.collect::<Vec<_>>().join("\n");
    if answers.is_empty() {
        text = no_process();
    }
    silent.iter().for_each(|why| text.push_str(&format!("No answer: {}\n", out::printable(why))));
    out::text(&text)?;
    Ok(Outcome::Done)
}

fn counters(answer: &Answer) -> impl Iterator<Item = &Counters> {
    answer.records.iter().filter_map(|record| match record {
        Record::Counters(counters) => Some(counters),
        _ => None,
    })
}

fn as_json(answer: &Answer) -> Value {
    let counters: Vec<&Counters> = counters(answer).collect();
    json!({
        "pid": answer.pid, "uid": answer.uid, "name": answer.name, "net": answer.net, "counters": counters,
    })
}

fn table(answer: &Answer, all: bool) -> Table {
    let lanes = answer.net.lanes;
    let columns = if (2..=COLUMNS).contains(&lanes) { lanes } else { 0 };
    let head = ["of", "counter", "total"].map(str::to_owned).into_iter();
    let mut table =
        Table::new(title(answer), head.chain((0..columns).map(|n| format!("lane {n}"))));
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<Option<u64>>>> = BTreeMap::new();
    for one in counters(answer) {
        let group = groups.entry(&one.of).or_default();
        for (name, &count) in &one.counts {
            // The total comes first.
            let row = group.entry(name).or_insert_with(|| vec![None; columns + 1]);
            row[0] = Some(row[0].unwrap_or(0).saturating_add(count));
            if let Some(cell) = one.lane.and_then(|lane| row.get_mut(lane + 1)) {
                *cell = Some(count);
            }
        }
    }
    for (of, group) in groups {
        for (name, row) in group.into_iter().filter(|(_, row)| all || row[0] != Some(0)) {
            let number =
                |count: Option<u64>| Cell::number(count.map_or("-".into(), |n| n.to_string()));
            let mut cells = vec![Cell::text(out::printable(of)), Cell::text(out::printable(name))];
            cells.extend(row.into_iter().map(number));
            table.push(cells);
        }
    }
    table
}
