//! `heddle net ls`: lists the sockets and connections of lanes.

use std::collections::BTreeMap;

use heddle_metrics::{Cell, Table, human};
use serde_json::{Value, json};

use super::which::{Which, no_process, title};
use crate::exit::Outcome;
use crate::out;
use crate::sources::lanes::Answer;
use crate::sources::lanes::record::{Connection, Listener, Record, Udp};

/// Options of `heddle net ls`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  heddle net ls
  heddle net ls server --tcp --info
  heddle net ls --json | jq '.processes[].connections[] | select(.retransmits > 0)'

recv-q and send-q are bytes, as in `ss`; of a listener the connections that wait to be accepted and
how many may. Root sees all processes, other users their own.")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only TCP listeners, and UDP sockets without a peer.
    #[arg(short, long)]
    listening: bool,
    /// Only UDP, or with --tcp both.
    #[arg(short, long)]
    udp: bool,
    /// Only TCP, or with --udp both.
    #[arg(short, long)]
    tcp: bool,
    /// Show each connection's times, windows and bytes, and what waits in each lane.
    #[arg(short, long)]
    info: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// Lists sockets.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (answers, silent) = args.which.ask("sockets")?;
    if args.json {
        let processes: Vec<Value> = answers.iter().map(|answer| args.as_json(answer)).collect();
        out::json(&json!({ "schema": 1, "processes": processes, "silent": silent }))?;
        return Ok(Outcome::Done);
    }
    let tables = answers.iter().map(|answer| args.table(answer).to_text(out::style()));
    let mut text = tables.collect::<Vec<_>>().join("\n");
    if answers.is_empty() {
        text = no_process();
    }
    silent.iter().for_each(|why| text.push_str(&format!("No answer: {}\n", out::printable(why))));
    out::text(&text)?;
    Ok(Outcome::Done)
}

/// A process's sockets.
#[derive(Default)]
struct Sockets<'a> {
    udp: Vec<&'a Udp>,
    listeners: Vec<&'a Listener>,
    connections: Vec<&'a Connection>,
}

impl Args {
    /// Returns the sockets that the options select.
    fn sockets<'a>(&self, answer: &'a Answer) -> Sockets<'a> {
        let (udp, tcp) = (self.udp || !self.tcp, self.tcp || !self.udp);
        let mut sockets = Sockets::default();
        for record in &answer.records {
            match record {
                Record::Udp(one) if udp && !(self.listening && one.remote.is_some()) => {
                    sockets.udp.push(one);
                }
                Record::Listener(one) if tcp => sockets.listeners.push(one),
                Record::Connection(one) if tcp && !self.listening => sockets.connections.push(one),
                _ => {}
            }
        }
        sockets
    }

    fn as_json(&self, answer: &Answer) -> Value {
        let Sockets { udp, listeners, connections } = self.sockets(answer);
        json!({
            "pid": answer.pid, "uid": answer.uid, "name": answer.name, "net": answer.net,
            "udp": udp, "listeners": listeners, "connections": connections,
        })
    }

    fn table(&self, answer: &Answer) -> Table {
        const HEAD: [&str; 8] =
            ["proto", "state", "lane", "recv-q", "send-q", "dropped", "local", "remote"];
        const INFO: [&str; 9] =
            ["srtt", "rttvar", "rto", "cwnd", "ssthresh", "retrans", "mss", "in", "out"];
        let info: &[&str] = if self.info { &INFO } else { &[] };
        let mut table = Table::new(title(answer), HEAD.iter().chain(info).copied());
        let sockets = self.sockets(answer);
        sockets.udp.iter().for_each(|one| table.push(udp(one)));
        for (local, lanes) in by_address(&sockets.listeners) {
            table.push(listener(local, &lanes));
            if self.info {
                let waiting: Vec<String> = lanes
                    .iter()
                    .map(|one| format!("{} in lane {}", one.waiting, one.lane))
                    .collect();
                table.notes.push(format!("{local}: {} wait", waiting.join(", ")));
            }
        }
        for one in sockets.connections {
            let mut row = connection(one);
            if self.info {
                row.extend(information(one));
            }
            table.push(row);
        }
        table
    }
}

/// Returns the listeners of each address, one for each lane.
fn by_address<'a>(listeners: &[&'a Listener]) -> BTreeMap<&'a str, Vec<&'a Listener>> {
    let mut all: BTreeMap<&str, Vec<&Listener>> = BTreeMap::new();
    listeners.iter().for_each(|one| all.entry(&one.local).or_default().push(one));
    all
}

fn text(text: &str) -> Cell {
    Cell::text(out::printable(text))
}

fn number(number: impl ToString) -> Cell {
    Cell::number(number.to_string())
}

/// The cell of what a socket of this kind does not have.
fn nothing() -> Cell {
    Cell::number("-")
}

fn udp(one: &Udp) -> Vec<Cell> {
    vec![
        Cell::text("udp"),
        Cell::text(if one.remote.is_some() { "ESTAB" } else { "UNCONN" }),
        Cell::number("all"),
        number(one.waiting),
        nothing(),
        number(one.dropped),
        text(&one.local),
        text(one.remote.as_deref().unwrap_or("*")),
    ]
}

fn listener(local: &str, lanes: &[&Listener]) -> Vec<Cell> {
    let sum = |of: fn(&Listener) -> u64| lanes.iter().map(|one| of(one)).sum::<u64>();
    vec![
        Cell::text("tcp"),
        Cell::text("LISTEN"),
        Cell::number("all"),
        number(sum(|one| one.waiting)),
        number(sum(|one| one.backlog)),
        nothing(),
        text(local),
        Cell::text("*"),
    ]
}

fn connection(one: &Connection) -> Vec<Cell> {
    vec![
        Cell::text("tcp"),
        text(&one.state),
        number(one.lane),
        number(one.recv_q),
        number(one.send_q),
        nothing(),
        text(&one.local),
        text(&one.remote),
    ]
}

/// The slow start threshold of a connection without a loss, in bytes.
const UNLIMITED: u64 = 1 << 30;

/// Returns the cells of `--info`. What was not measured yet is `-`.
fn information(one: &Connection) -> Vec<Cell> {
    let time = |ns: u64| Cell::number(if ns == 0 { "-".into() } else { human(ns as f64, "ns") });
    // No loss was seen yet: the largest window.
    let ssthresh = if one.ssthresh >= UNLIMITED { nothing() } else { number(one.ssthresh) };
    vec![
        time(one.srtt_ns),
        time(one.rttvar_ns),
        time(one.rto_ns),
        number(one.cwnd),
        ssthresh,
        number(one.retransmits),
        number(one.mss),
        number(one.bytes_received),
        number(one.bytes_sent),
    ]
}
