//! Unmodified servers in their own network namespace: the kernel's choice compared with JIQ, which is
//! attached from outside by copying their sockets.

mod gunicorn;
mod http;
mod udp;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_core::Ns;
use heddle_metrics::{Cell, Collector, Mark, Progress, Row, Run, Table, human};
use heddle_netns::Namespace;
use heddle_steer::hook::observe::Observed;
use heddle_steer::process::serving;

pub use gunicorn::{gunicorn, missing as no_gunicorn};
pub use udp::{UDP_SERVER, serve_until_end, udp, under_load};

use super::mixes::invalid;
use super::{Dilation, Group};
use heddle_load::{LoadRun, Op};

/// Options of this part.
#[derive(Clone, Debug)]
pub struct OutsideOptions {
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The UDP server's time dilation.
    pub dilation: Dilation,
    /// This program, which can run as the UDP server.
    pub program: PathBuf,
}

/// What chooses among the server's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// The kernel.
    Default,
    /// Heddle's join-idle-queue.
    Jiq,
}

impl fmt::Display for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Chooser::Jiq { "jiq" } else { "default" })
    }
}

/// Least factor by which JIQ must lower the p90 of short requests (issue 4).
const TARGET: f64 = 5.0;

/// A server under test.
trait Subject {
    /// The case in results.
    const CASE: &'static str;
    /// What its sockets receive.
    const KIND: Observed;
    /// Starts it, offers the load of a round once `attach` has seen its process and port, and ends it.
    fn measure(
        &self,
        net: &Namespace,
        round: u32,
        stop: &AtomicBool,
        attach: &dyn Fn(u32, u16) -> io::Result<Option<Group>>,
    ) -> io::Result<LoadRun>;
}

/// Measures one server in interleaved rounds.
fn compare<S: Subject>(
    subject: &S,
    options: &OutsideOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let net = Namespace::new()?;
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        let mut p90 = Vec::new();
        for chooser in [Chooser::Default, Chooser::Jiq] {
            if stop.load(Ordering::Relaxed) {
                return Ok(collect.into_rows());
            }
            progress.step(&format!("round {}: {} by {chooser}", round + 1, S::CASE));
            let attach = |pid, port| attach(chooser, pid, port, S::KIND);
            let run = subject.measure(&net, round, stop, &attach)?;
            progress.line(&line(S::CASE, chooser, &run));
            add(&mut collect, S::CASE, chooser, &run);
            p90.push((run.tally.op(Op::Get).latency.p90().0 as f64, invalid(&run)));
        }
        if let [(default, a), (jiq, b)] = &p90[..] {
            let gain = default / jiq;
            let why = a.clone().or_else(|| b.clone());
            let run = why.map_or(Run::ok(gain), |why| Run::invalid(gain, why));
            collect.add("jiq", S::CASE, "short_p90_gain", "x", run);
        }
    }
    let rows = collect.into_rows().into_iter();
    let better = |row: Row| match row.metric.ends_with("_gain") {
        true => row.with_better(heddle_metrics::Better::Higher),
        false => row,
    };
    Ok(rows.map(better).collect())
}

/// The sockets with which the process and its children serve the port.
fn attach(chooser: Chooser, pid: u32, port: u16, kind: Observed) -> io::Result<Option<Group>> {
    if chooser == Chooser::Default {
        return Ok(None);
    }
    let sockets = serving(Some(pid), Some(port)).map_err(io::Error::other)?;
    let copies = sockets.iter().map(|socket| socket.copy().map_err(io::Error::other));
    Group::attach("jiq", &copies.collect::<io::Result<Vec<_>>>()?, kind).map(Some)
}

fn line(case: &str, chooser: Chooser, run: &LoadRun) -> String {
    let latency = &run.tally.op(Op::Get).latency;
    let time = |time: Ns| human(time.0 as f64, "ns");
    let why = invalid(run).map_or(String::new(), |why| format!(" ({why})"));
    format!(
        "  {:12} {case}: short requests p50 {}, p90 {}, p99 {}{why}",
        chooser.to_string(),
        time(latency.p50()),
        time(latency.p90()),
        time(latency.p99())
    )
}

fn add(collect: &mut Collector, case: &str, chooser: Chooser, run: &LoadRun) {
    let (system, why) = (chooser.to_string(), invalid(run));
    let value = |value: f64| why.clone().map_or(Run::ok(value), |why| Run::invalid(value, why));
    for (name, op) in [("short", Op::Get), ("long", Op::Scan)] {
        let latency = &run.tally.op(op).latency;
        let times = [("p50", latency.p50()), ("p90", latency.p90()), ("p99", latency.p99())];
        for (what, time) in times {
            let metric = format!("{name}_{what}_ns");
            collect.add(&system, case, &metric, "ns", value(time.0 as f64));
        }
    }
    let counts = run.tally.counts();
    collect.add(&system, case, "dropped_share", "%", value(counts.lost_share() * 100.0));
    collect.add(&system, case, "late_share", "%", value(counts.late_share() * 100.0));
}

/// The tables of both servers.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let titles = [
        (
            udp::CASE,
            "An unmodified UDP server, six sockets, 99.5/0.5 at half of capacity (dilated)",
        ),
        (gunicorn::CASE, "Unmodified gunicorn, six sync workers, 10 ms requests and 5 % of 200 ms"),
    ];
    let tables = titles.iter().map(|(case, title)| table(case, title, rows));
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn table(case: &str, title: &str, rows: &[Row]) -> Table {
    let metrics = ["short_p50_ns", "short_p90_ns", "short_p99_ns", "long_p50_ns", "dropped_share"];
    let head = ["system", "short p50", "short p90", "short p99", "long p50", "dropped"];
    let mut table = Table::new(title, head);
    for system in [Chooser::Default, Chooser::Jiq].map(|chooser| chooser.to_string()) {
        let find = |metric: &&str| {
            rows.iter().find(|r| r.case == case && r.system == system && r.metric == *metric)
        };
        let found: Vec<&Row> = metrics.iter().filter_map(find).collect();
        if found.is_empty() {
            continue;
        }
        let cells = found.into_iter().map(|row| {
            let cell = Cell::number(human(row.value, &row.unit));
            if row.valid { cell } else { cell.marked(Mark::Invalid) }
        });
        table.push([Cell::text(system)].into_iter().chain(cells).collect());
    }
    table
}

/// One sentence for each server.
#[must_use]
pub fn verdicts(rows: &[Row]) -> Vec<String> {
    let said = rows.iter().filter(|row| row.metric == "short_p90_gain").map(|row| {
        let reached = match (row.valid, row.value >= TARGET) {
            (false, _) => "the runs are invalid: do not quote",
            (true, _) if row.runs > 1 && !row.is_distinct_from(1.0) => "not measurable",
            (true, true) => "reached",
            (true, false) => "missed",
        };
        format!(
            "{}: JIQ lowers the p90 of short requests {:.1} times (rounds {:.1} to {:.1}; target {TARGET:.0}: \
             {reached}).",
            row.case, row.value, row.min, row.max
        )
    });
    said.collect()
}
