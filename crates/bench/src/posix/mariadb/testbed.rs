//! MariaDB under one system, and its load.

use heddle_sys::thread::SavedAffinity;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use heddle_core::Ns;
use heddle_load::{Arrivals, Closed, LoadRun, Mix, Op, Pace, Plan, RealClock, closed_loop, drive};

use super::super::daemon::Daemon;
use super::super::options::PosixOptions;
use super::super::system::System;
use super::super::turns;
use super::clients::Clients;
use super::data;
use super::server::Store;
use crate::kv::{Bystanders, Cpus};
use heddle_metrics::human;

/// Connections for selects, and connections that aggregate, for each CPU of the server.
pub(super) const CONNECTIONS: (usize, usize) = (30, 2);
/// CPUs of the server: one client thread cannot keep more busy.
const MOST_CPUS: usize = 4;
/// Time limit, after which a select is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
const WARMUP: Ns = Ns::from_ms(500);
/// The capacity is the median of so many bursts.
const BURSTS: usize = 5;
const BURST: Ns = Ns::from_ms(200);
/// The nice value of threads that aggregate, on [`System::KernelNice`].
const NICE: i32 = 19;

/// State shared by all systems.
pub(super) struct Testbed<'a> {
    options: &'a PosixOptions,
    cpus: Cpus,
    store: Store,
    /// Rows of an aggregate.
    pub(super) rows: u64,
    /// Selects per second that the kernel's server answers without aggregates.
    pub(super) capacity: f64,
    _affinity: SavedAffinity,
}

/// One system in one round.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) run: LoadRun,
    /// Aggregates per second; `None` if too few ended.
    pub(super) aggregates: Option<f64>,
    /// CPU time of all processes beside server and load, as a share of one CPU.
    others: f64,
}

impl turns::Sample for Sample {
    fn invalid(&self) -> Option<String> {
        turns::problem(&self.run, self.others)
    }

    fn summary(&self) -> String {
        let latency = &self.run.tally.op(Op::Get).latency;
        let time = |percent| human(latency.percentile(percent).0 as f64, "ns");
        let rate = self.aggregates.map_or("none".into(), |rate| format!("{rate:.1}/s"));
        format!(
            "select p50 {:>8}  p99 {:>8}  p99.9 {:>8}  aggregates {rate:>7}",
            time(50.0),
            time(99.0),
            time(99.9),
        )
    }
}

/// The CPUs of server and load.
///
/// # Errors
/// No CPU may be used.
pub(super) fn cpus(options: &PosixOptions) -> Result<Cpus, String> {
    let mut cpus = Cpus::divide(&options.cpus, None)?;
    cpus.server.truncate(MOST_CPUS);
    Ok(cpus)
}

impl<'a> Testbed<'a> {
    /// Creates the table, and measures the queries on kernel threads.
    ///
    /// # Errors
    /// The server is not installed, does not start or answer; interruption.
    pub(super) fn prepare(options: &'a PosixOptions, stop: &AtomicBool) -> io::Result<Testbed<'a>> {
        let cpus = cpus(options).map_err(io::Error::other)?;
        let (store, _affinity) = (Store::create()?, SavedAffinity::save()?);
        let mut testbed =
            Testbed { options, cpus, store, rows: data::ROWS, capacity: 0.0, _affinity };
        let socket = testbed.store.socket();
        let server = testbed.start(&System::Kernel, stop)?;
        let measure = || -> io::Result<(u64, f64)> {
            data::fill(&socket)?;
            data::warm(&socket)?;
            Ok((data::rows_of_an_aggregate(&socket)?, testbed.capacity(stop)?))
        };
        (testbed.rows, testbed.capacity) = measure().map_err(|error| server.explain(&error))?;
        Ok(testbed)
    }

    fn start(&self, system: &System, stop: &AtomicBool) -> io::Result<Daemon> {
        heddle_sys::thread::pin(&[self.cpus.load])?;
        self.store.start(&self.options.program, system, &self.cpus.server, stop)
    }

    fn connections(&self) -> (usize, usize) {
        let count = self.cpus.server.len();
        (CONNECTIONS.0 * count, CONNECTIONS.1 * count)
    }

    fn pace(&self) -> Pace {
        if self.cpus.shared { Pace::Sleep } else { Pace::Busy }
    }

    /// The median of several bursts in a closed loop.
    fn capacity(&self, stop: &AtomicBool) -> io::Result<f64> {
        let depth = self.connections().0;
        let mut clients = Clients::connect(&self.store.socket(), (depth, 0), 1)?;
        clients.begin()?;
        let keys = data::ROWS as usize;
        let closed = Closed { op: Op::Get, keys, depth, warmup: BURST / 5, duration: BURST };
        let mut rates = Vec::with_capacity(BURSTS);
        for _ in 0..BURSTS {
            let go_on = || !stop.load(Ordering::Relaxed);
            let rate =
                closed_loop(closed, &mut RealClock::start(self.pace()), &mut clients, go_on)?;
            rates.push(rate.ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?);
        }
        rates.sort_by(f64::total_cmp);
        Ok(rates[BURSTS / 2])
    }

    /// Offered selects per second: half of the CPU is left to aggregates.
    pub(super) fn rate(&self) -> f64 {
        self.capacity / 2.0 * self.options.load
    }

    /// Measures a fresh server.
    ///
    /// # Errors
    /// It does not start, or stops answering; interruption.
    pub(super) fn measure(
        &self,
        system: &System,
        round: u32,
        stop: &AtomicBool,
    ) -> io::Result<Sample> {
        let server = self.start(system, stop)?;
        let sample = self.sample(&server, system, round, stop);
        match stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => sample.map_err(|error| server.explain(&error)),
        }
    }

    fn sample(
        &self,
        server: &Daemon,
        system: &System,
        round: u32,
        stop: &AtomicBool,
    ) -> io::Result<Sample> {
        let socket = self.store.socket();
        data::warm(&socket)?;
        let mut clients = Clients::connect(&socket, self.connections(), self.rows)?;
        if *system == System::KernelNice {
            let threads = clients.aggregating_threads()?;
            threads.into_iter().try_for_each(|tid| heddle_sys::scheduling::set_nice(tid, NICE))?;
        }
        clients.begin()?;
        let bystanders = Bystanders::watch(&[server.pid(), std::process::id()]);
        let begin = Instant::now();
        let (run, window) = self.offer(&mut clients, round, stop)?;
        let others = bystanders.used().as_secs_f64() / begin.elapsed().as_secs_f64();
        let aggregates = rate_within(clients.aggregated(), window);
        Ok(Sample { run, aggregates, others })
    }

    /// Offers selects beside the aggregates; returns the window by the system's clock, too.
    fn offer(
        &self,
        clients: &mut Clients,
        round: u32,
        stop: &AtomicBool,
    ) -> io::Result<(LoadRun, (Ns, Ns))> {
        let plan = Plan { warmup: WARMUP, end: WARMUP + self.options.duration, timeout: TIMEOUT };
        let seed = self.options.seed.wrapping_add(round.into());
        let arrivals = Arrivals::new(seed, self.rate(), Mix::only(Op::Get), data::ROWS as usize);
        let mut clock = RealClock::start(self.pace());
        let started = clock.started();
        let go_on = |_: heddle_load::Moment<'_>| !stop.load(Ordering::Relaxed);
        let unloaded = [None; Op::ALL.len()];
        let run = drive(plan, self.rate(), arrivals, (&mut clock, clients), unloaded, go_on)?;
        Ok((run, (started + plan.warmup, started + plan.end)))
    }

    /// A progress line.
    pub(super) fn in_words(&self) -> String {
        let most = human(self.capacity, "1/s");
        format!(
            "  an aggregate reads {} rows; the kernel's server answers {most} selects",
            self.rows
        )
    }
}

/// The rate of events in a window, from the first to the last of them: how long the first has run before the window is
/// not known.
fn rate_within(times: &[Ns], (from, until): (Ns, Ns)) -> Option<f64> {
    let mut within: Vec<Ns> =
        times.iter().copied().filter(|at| (from..until).contains(at)).collect();
    within.sort();
    let (&first, &last) = (within.first()?, within.last()?);
    (last > first).then(|| (within.len() - 1) as f64 / (last - first).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_counts_between_the_first_and_the_last_event_of_the_window() {
        let times: Vec<Ns> = [5, 10, 20, 30, 40, 90].map(Ns::from_ms).to_vec();
        let rate = |from, until| rate_within(&times, (Ns::from_ms(from), Ns::from_ms(until)));
        assert_eq!(rate(10, 41), Some(100.0));
        assert_eq!(rate(10, 40), Some(100.0), "the end does not belong to it");
        assert_eq!(rate(50, 95), None, "one is no rate");
        assert_eq!(rate(91, 95), None);
    }

    #[test]
    fn the_server_has_no_more_cpus_than_the_load_can_keep_busy() {
        let of = |cpus: Vec<u32>| PosixOptions::new(&[], &cpus, "/bin/false".into(), true);
        let divided = cpus(&of((0..16).collect())).unwrap();
        assert_eq!((divided.server.as_slice(), divided.load), (&[0, 1, 2, 3][..], 15));
        assert!(cpus(&of(vec![])).is_err());
    }
}
