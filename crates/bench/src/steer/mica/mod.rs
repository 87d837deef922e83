//! Keys to their cores (Syrup, section 5.4): a store after MICA, partitioned by key over threads, on AF_XDP.
//!
//! Every thread has an AF_XDP socket and a private partition of the store. Either the kernel delivers each
//! request to the thread that owns its key (policy `key-hash`), or any thread gets it (policy `round-robin`)
//! and forwards it through a queue to the owner. The client is the same, on the far end of a veth pair.

mod client;
mod network;
mod partition;
mod server;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heddle_metrics::{Better, Cell, Collector, Progress, Row, Run, Table, human};

use client::Load;
use network::Network;

/// Options of this part.
#[derive(Clone, Copy, Debug)]
pub struct MicaOptions {
    /// Rounds.
    pub rounds: u32,
    /// Load time of each system, once at the rate and once at full speed.
    pub duration: Duration,
    /// Threads, each with a partition of the store.
    pub threads: u32,
    /// Requests per second while latencies are measured.
    pub rate: u32,
}

impl MicaOptions {
    /// The default length; with `quick`, one short round.
    #[must_use]
    pub fn new(quick: bool) -> Self {
        let (rounds, ms) = if quick { (1, 500) } else { (5, 2000) };
        Self { rounds, duration: Duration::from_millis(ms), threads: 4, rate: 10_000 }
    }
}

/// Where a request is routed to the thread of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partitioning {
    /// In the kernel, by a policy.
    Kernel,
    /// In the application, through a queue between threads.
    Application,
}

impl Partitioning {
    const ALL: [Self; 2] = [Self::Kernel, Self::Application];

    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "key-hash",
            Self::Application => "application",
        }
    }

    fn policy(self) -> &'static str {
        match self {
            Self::Kernel => "key-hash",
            Self::Application => "round-robin",
        }
    }
}

const CASE: &str = "mica";
const THROUGHPUT: &str = "throughput_per_s";
const P99: &str = "p99_ns";

/// Measures; returns the results so far if `stop` is set.
///
/// # Errors
/// System errors, mostly a lack of privileges.
pub fn run(
    options: &MicaOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("keys to their cores");
    let mut collect = Collector::new();
    for _ in 0..options.rounds {
        for partitioning in Partitioning::ALL {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            measure(options, partitioning, &mut collect)?;
            progress.tick();
        }
    }
    let better = |row: Row| match row.metric == THROUGHPUT {
        true => row.with_better(Better::Higher),
        false => row.with_better(Better::Lower),
    };
    Ok(collect.into_rows().into_iter().map(better).collect())
}

fn measure(
    options: &MicaOptions,
    partitioning: Partitioning,
    collect: &mut Collector,
) -> io::Result<()> {
    let mut network = Network::new(partitioning.policy(), options.threads)?;
    let server = server::Server::start(network.take_sockets())?;
    let paced = client::run(&network, Load::Rate(options.rate), options.duration)?;
    let closed = client::run(&network, Load::Closed, options.duration)?;
    let served = server.stop()?;
    let mut add = |metric: &str, unit: &str, value| {
        collect.add(partitioning.name(), CASE, metric, unit, Run::ok(value));
    };
    add(THROUGHPUT, "1/s", closed.answers as f64 / closed.elapsed.as_secs_f64());
    add("p50_ns", "ns", paced.latency.p50().0 as f64);
    add(P99, "ns", paced.latency.p99().0 as f64);
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64 * 100.0;
    add("lost_share", "%", share(paced.requests - paced.answers, paced.requests));
    add("passed_on_share", "%", share(served.passed_on, served.requests));
    add("wrong_answers", "answers", (paced.wrong + closed.wrong) as f64);
    Ok(())
}

fn value(rows: &[Row], system: &str, metric: &str) -> Option<f64> {
    let is = |row: &&Row| row.case == CASE && row.system == system && row.metric == metric;
    rows.iter().find(is).map(|row| row.value)
}

/// The two ways as a table.
#[must_use]
pub fn table(rows: &[Row]) -> Option<Table> {
    let mut table = Table::new(
        "Keys to their cores, over AF_XDP",
        ["brought there by", "throughput", "p50", "p99", "lost", "passed on"],
    );
    for way in Partitioning::ALL {
        let at = |metric| value(rows, way.name(), metric);
        let Some(throughput) = at(THROUGHPUT) else { continue };
        let time = |metric| at(metric).map_or(String::new(), |ns| human(ns, "ns"));
        let share = |metric| at(metric).map_or(String::new(), |share| format!("{share:.1} %"));
        table.push(vec![
            Cell::text(way.name()),
            Cell::number(human(throughput, "1/s")),
            Cell::number(time("p50_ns")),
            Cell::number(time(P99)),
            Cell::number(share("lost_share")),
            Cell::number(share("passed_on_share")),
        ]);
    }
    table.notes.push(
        "throughput: 64 requests at a time; p50 and p99: open loop; passed on: from the receiving thread to the \
         owner of the key".into(),
    );
    (!table.rows.is_empty()).then_some(table)
}

/// One sentence on the two ways.
#[must_use]
pub fn verdict(rows: &[Row]) -> Option<String> {
    let ratio = |metric| {
        let [kernel, application] = Partitioning::ALL.map(|way| value(rows, way.name(), metric));
        Some((kernel?, application?))
    };
    let ((fast, slow), (low, high)) = (ratio(THROUGHPUT)?, ratio(P99)?);
    Some(format!(
        "Keys brought to their cores by the kernel: {:.2} times the throughput of passing them on in the \
         application, p99 {} against {}.",
        fast / slow,
        human(low, "ns"),
        human(high, "ns"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_answer_every_request_with_what_its_thread_has() {
        if let Some(why) = heddle_netns::missing_privilege() {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let options =
            MicaOptions { rounds: 1, duration: Duration::from_millis(300), threads: 3, rate: 500 };
        let mut progress = Progress::log(io::sink(), "test", 1);
        let rows = run(&options, &AtomicBool::new(false), &mut progress).unwrap();
        for way in Partitioning::ALL {
            let at = |metric| value(&rows, way.name(), metric).unwrap();
            assert_eq!(at("wrong_answers"), 0.0);
            assert!(at(THROUGHPUT) > 0.0);
        }
        assert_eq!(value(&rows, "key-hash", "passed_on_share"), Some(0.0));
        assert!(value(&rows, "application", "passed_on_share").unwrap() > 30.0);
        assert!(table(&rows).is_some() && verdict(&rows).is_some());
    }
}
