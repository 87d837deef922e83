//! Keys to their cores (Syrup, section 5.4, Figure 9): a store after MICA, partitioned by key over threads.
//!
//! Each request must come to the thread that owns its key. Either the kernel delivers it there (policy `key-hash`): to
//! an AF_XDP socket that the thread has on every receive queue, in the driver or in XDP's generic mode, or to an
//! ordinary socket. Or any thread gets it (policy `round-robin`) and forwards it through a queue to the owner. The
//! client is the same, on the far end of a veth pair.

mod network;
mod partition;
mod server;
mod way;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_core::Ns;
use heddle_load::{Arrivals, Closed, Op, Plan, closed_loop, drive};
use heddle_metrics::{Better, Cell, Collector, Progress, Row, Run, Table, human};

use super::flows::{FLOWS, Flows, Format, flow};
use super::mixes::invalid;
use network::{Network, SERVER};
use partition::{KEYS, REQUEST};
use server::Server;
use way::{Requests, Way};

/// Options of this part.
#[derive(Clone, Debug)]
pub struct MicaOptions {
    /// Rounds.
    pub rounds: u32,
    /// Load time of each system at each rate, and once at full speed.
    pub duration: Ns,
    /// Threads, each with a partition of the store; 1 to 64.
    pub threads: u32,
    /// Receive queues of the interface.
    pub queues: u32,
    /// Rates at which latencies are measured, as shares of the requests per second that are answered at full speed if
    /// the application passes them on.
    pub loads: Vec<f64>,
}

impl MicaOptions {
    /// Eight threads and queues as in the paper, five rounds, some six minutes; with `quick`, one short round.
    #[must_use]
    pub fn new(quick: bool) -> Self {
        let (rounds, ms) = if quick { (1, 300) } else { (5, 1000) };
        let loads = if quick { vec![0.5] } else { vec![0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4] };
        Self { rounds, duration: Ns::from_ms(ms), threads: 8, queues: 8, loads }
    }

    /// The number of times that progress is made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        1 + u64::from(self.rounds) * (Way::ALL.len() * Requests::ALL.len()) as u64
    }
}

const THROUGHPUT: &str = "throughput_per_s";
const TAIL: &str = "p99.9";
/// The tail up to which a load counts as served; the paper's is 1 ms on eight cores.
const TAIL_LIMIT: Ns = Ns::from_ms(5);
const WARMUP: Ns = Ns::from_ms(200);
/// Time limit, after which a request is lost.
const LOST: Ns = Ns::from_ms(200);
/// Requests in flight at full speed.
const WINDOW: usize = 64;

/// Measures; returns the results so far if `stop` is set.
///
/// # Errors
/// System errors, mostly a lack of privileges.
pub fn run(
    options: &MicaOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let mut collect = Collector::new();
    progress.step("keys to their cores: full speed of the application");
    let Some(full) = Measured::start(options, Way::Application)?.full_speed(options, stop)? else {
        return Ok(Vec::new());
    };
    progress.tick();
    let rates: Vec<f64> =
        options.loads.iter().map(|load| (load * full / 1000.0).round().max(1.0) * 1000.0).collect();
    for round in 1..=options.rounds {
        for requests in Requests::ALL {
            for way in Way::ALL {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                progress.step(&format!("round {round}: {} by {}", requests.case(), way.name()));
                measure(options, way, requests, (&rates, round), stop, &mut collect)?;
                progress.tick();
            }
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
    way: Way,
    requests: Requests,
    (rates, round): (&[f64], u32),
    stop: &AtomicBool,
    collect: &mut Collector,
) -> io::Result<()> {
    let mut measured = Measured::start(options, way)?;
    let (system, case) = (way.name(), requests.case());
    for &rate in rates {
        let plan = Plan { warmup: WARMUP, end: WARMUP + options.duration, timeout: LOST };
        let arrivals = Arrivals::new(round.into(), rate, requests.mix(), KEYS as usize);
        let mut clock = measured.flows.clock();
        let on = (&mut clock, &mut measured.flows as &mut dyn heddle_load::Transport);
        let run = drive(plan, rate, arrivals, on, [None; Op::ALL.len()], |_| {
            !stop.load(Ordering::Relaxed)
        })?;
        let mut latency = heddle_metrics::Histogram::new();
        for op in Op::ALL {
            latency.merge(&run.tally.op(op).latency);
        }
        let why = invalid(&run);
        let mut at = collect.at_load(rate);
        at.latency(system, case, &latency, why.as_deref());
        let counts = run.tally.counts();
        let value = |value| match &why {
            Some(why) => Run::invalid(value, why.clone()),
            None => Run::ok(value),
        };
        at.add(system, case, "lost_share", "%", value(counts.lost_share() * 100.0));
        at.add(system, case, "wrong_answers", "answers", Run::ok(counts.failed as f64));
    }
    if let Some(full) = measured.full_speed(options, stop)? {
        collect.add(system, case, THROUGHPUT, "1/s", Run::ok(full));
    }
    let served = measured.server.stop()?;
    let share = served.passed_on as f64 / served.requests.max(1) as f64 * 100.0;
    collect.add(system, case, "passed_on_share", "%", Run::ok(share));
    Ok(())
}

/// A server and its client.
struct Measured {
    flows: Flows<REQUEST>,
    server: Server,
    /// After the server, whose sockets are in it.
    _network: Network,
}

impl Measured {
    fn start(options: &MicaOptions, way: Way) -> io::Result<Self> {
        let mut network = Network::new(way, options.threads, options.queues)?;
        let sockets: io::Result<Vec<_>> =
            network.pair.far.run(|| (0..FLOWS).map(|_| flow(SERVER)).collect());
        let format = Format { request: partition::request, answered: partition::answer };
        let flows = Flows::over(sockets?, format)?;
        let server = Server::start(network.take_receivers())?;
        Ok(Self { flows, server, _network: network })
    }

    /// Answers per second to GETs of which a fixed number is in flight; `None` if `stop` was set.
    fn full_speed(&mut self, options: &MicaOptions, stop: &AtomicBool) -> io::Result<Option<f64>> {
        let (warmup, duration) = (WARMUP, options.duration);
        let closed = Closed { op: Op::Get, keys: KEYS as usize, depth: WINDOW, warmup, duration };
        let mut clock = self.flows.clock();
        closed_loop(closed, &mut clock, &mut self.flows, || !stop.load(Ordering::Relaxed))
    }
}

fn points<'a>(rows: &'a [Row], way: Way, case: &'a str) -> impl Iterator<Item = &'a Row> {
    let is = move |row: &&Row| row.case == case && row.system == way.name();
    rows.iter().filter(is).filter(|row| row.metric == TAIL)
}

fn full_speed(rows: &[Row], way: Way, case: &str) -> Option<f64> {
    let is = |row: &&Row| row.case == case && row.system == way.name() && row.metric == THROUGHPUT;
    rows.iter().find(is).map(|row| row.value)
}

/// The highest rate up to which every point's tail is within the limit; 0 if that of the first is not.
fn served(rows: &[Row], way: Way, case: &str) -> f64 {
    let within = points(rows, way, case)
        .take_while(|row| row.valid && row.value <= TAIL_LIMIT.0 as f64)
        .filter_map(|row| row.load);
    within.fold(0.0, f64::max)
}

/// A table for each mix.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    Requests::ALL.into_iter().filter_map(|requests| table(rows, requests.case())).collect()
}

fn table(rows: &[Row], case: &str) -> Option<Table> {
    let rates: Vec<f64> = points(rows, Way::Application, case).filter_map(|row| row.load).collect();
    let mut columns = vec!["brought there by".to_owned(), "full speed".to_owned()];
    columns.extend(rates.iter().map(|&rate| format!("p99.9 at {}", human(rate, "1/s"))));
    let mut table = Table::new(format!("Keys to their cores, {case} GETs and PUTs"), columns);
    for way in Way::ALL {
        let Some(full) = full_speed(rows, way, case) else { continue };
        let mut cells = vec![Cell::text(way.name()), Cell::number(human(full, "1/s"))];
        for row in points(rows, way, case) {
            let mark = if row.valid { "" } else { " (invalid)" };
            cells.push(Cell::number(format!("{}{mark}", human(row.value, "ns"))));
        }
        table.push(cells);
    }
    table.notes.push(format!(
        "full speed: {WINDOW} GETs at a time; p99.9: open loop, lost requests count with {}",
        human(LOST.0 as f64, "ns")
    ));
    (!table.rows.is_empty()).then_some(table)
}

/// A sentence on each mix.
#[must_use]
pub fn verdicts(rows: &[Row]) -> Vec<String> {
    Requests::ALL.into_iter().filter_map(|requests| verdict(rows, requests.case())).collect()
}

fn verdict(rows: &[Row], case: &str) -> Option<String> {
    let application = full_speed(rows, Way::Application, case)?;
    let ways = [Way::Native, Way::Generic, Way::Sockets].into_iter().filter_map(|way| {
        let ratio = full_speed(rows, way, case)? / application;
        let rate = human(served(rows, way, case), "1/s");
        Some(format!("{} {ratio:.2} times at full speed and {rate}", way.name()))
    });
    Some(format!(
        "{case}, against passing on in the application, which keeps p99.9 within {} up to {}: {}.",
        human(TAIL_LIMIT.0 as f64, "ns"),
        human(served(rows, Way::Application, case), "1/s"),
        ways.collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_answers_every_request_with_what_its_thread_has() {
        if let Some(why) = heddle_netns::missing_privilege() {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let duration = Ns::from_ms(200);
        let options = MicaOptions { rounds: 1, duration, threads: 3, queues: 2, loads: vec![0.05] };
        let mut progress = Progress::log(io::sink(), "test", options.steps());
        let rows = run(&options, &AtomicBool::new(false), &mut progress).unwrap();
        for requests in Requests::ALL {
            for way in Way::ALL {
                let of = |metric: &str| {
                    let (system, case) = (way.name(), requests.case());
                    let is = |row: &&Row| {
                        (&*row.system, &*row.case, &*row.metric) == (system, case, metric)
                    };
                    rows.iter().find(is).unwrap_or_else(|| panic!("{system} {case} {metric}")).value
                };
                assert_eq!(of("wrong_answers"), 0.0, "{way:?}");
                assert!(of(THROUGHPUT) > 0.0 && of(TAIL) > 0.0, "{way:?}");
                let passed_on = of("passed_on_share");
                match way {
                    Way::Application => assert!(passed_on > 30.0, "{passed_on}"),
                    _ => assert_eq!(passed_on, 0.0, "{way:?}"),
                }
            }
        }
        assert_eq!((tables(&rows).len(), verdicts(&rows).len()), (2, 2));
    }
}
