//! A server under one system, and its load.

use super::calibrated;
use super::options::{BadgerOptions, Carrier};
use super::server::Server;
use super::system::System;
use super::toolchain::Toolchain;
use crate::kv::{Bystanders, Calibrated, calibrate, cpu_time};
use heddle_core::Ns;
use heddle_load::{LoadOptions, LoadRun, Moment, Op, measure};
use heddle_metrics::human;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Attempts if a server stops answering: one bad moment must not cost the whole measurement.
const TRIES: u32 = 3;

/// Most CPU time of other processes during a run, as a share of one CPU, half of it on the server's. Beyond
/// it, they determine the last per cent of latencies.
pub(super) const MOST_OTHERS: f64 = 0.02;

/// State shared by all systems of a part.
pub(super) struct Testbed<'a> {
    pub(super) options: &'a BadgerOptions,
    pub(super) carrier: Carrier,
    pub(super) calibrated: Calibrated,
    toolchain: &'a Toolchain,
    allowed: Vec<u32>,
}

/// One system at one load in one round.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) system: System,
    /// As a share of the saturation.
    pub(super) share: f64,
    pub(super) run: LoadRun,
    /// CPU time of the server, in per cent of one CPU.
    pub(super) cpu: Option<f64>,
    /// CPU time of all other processes meanwhile, as a share of one CPU.
    pub(super) others: f64,
}

/// Restores the CPU affinity, as `heddle bench kv` does.
impl Drop for Testbed<'_> {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = heddle_sys::thread::pin(&self.allowed);
    }
}

impl<'a> Testbed<'a> {
    /// Builds, loads the dataset, and calibrates the length of a SCAN and the saturation of the stock runtime
    /// (or of the first system, if stock is not among them).
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(super) fn prepare(
        options: &'a BadgerOptions,
        carrier: Carrier,
        toolchain: &'a Toolchain,
        stop: &AtomicBool,
    ) -> io::Result<Testbed<'a>> {
        let allowed = heddle_sys::thread::affinity()?;
        let calibrated = Calibrated { scan_len: 1, scan_service: Ns::ZERO, saturation: 1.0 };
        let mut testbed = Testbed { options, carrier, calibrated, toolchain, allowed };
        let stock = options.systems.iter().find(|&&system| system == System::STOCK);
        let reference = stock.or(options.systems.first()).copied();
        let reference = reference.ok_or_else(|| io::Error::other("no system to measure"))?;
        testbed.calibrated = retry_on_timeout(stop, || {
            let server = testbed.start(reference, stop)?;
            let found = calibrated::find(options, carrier, server.addresses, stop);
            found.map_err(|error| with_server_output(error, &server))
        })?;
        Ok(testbed)
    }

    /// A process inherits its parent's affinity.
    fn start(&self, system: System, stop: &AtomicBool) -> io::Result<Server> {
        let Some(cpus) = &self.options.cpus else {
            return Server::start(self.toolchain, &system, self.options.keys, stop);
        };
        heddle_sys::thread::pin(&cpus.server)?;
        let server = Server::start(self.toolchain, &system, self.options.keys, stop);
        heddle_sys::thread::pin(&[cpus.load])?;
        server
    }

    /// Measures all loads of one system. Repeats invalid runs as often as the options allow: other activity
    /// on the machine comes and goes.
    ///
    /// # Errors
    /// It does not start, or repeatedly stops answering; interruption.
    pub(super) fn measure(
        &self,
        system: System,
        round: u32,
        stop: &AtomicBool,
    ) -> io::Result<Vec<Sample>> {
        let mut samples = self.once(system, round, stop)?;
        for _ in 1..self.options.tries {
            if samples.iter().all(|sample| sample.invalid().is_none()) {
                break;
            }
            samples = self.once(system, round, stop)?;
        }
        Ok(samples)
    }

    /// Measures all loads of one system on a fresh server.
    fn once(&self, system: System, round: u32, stop: &AtomicBool) -> io::Result<Vec<Sample>> {
        retry_on_timeout(stop, || {
            let server = self.start(system, stop)?;
            let load = calibrated::load(
                self.options,
                self.carrier,
                server.addresses,
                self.calibrated.scan_len,
            );
            let load = LoadOptions { seed: load.seed.wrapping_add(round.into()), ..load };
            let of = |&share: &f64| self.point(system, share, &load, &server, stop);
            let samples: io::Result<Vec<Sample>> = self.options.loads.iter().map(of).collect();
            samples.map_err(|error| with_server_output(error, &server))
        })
    }

    fn point(
        &self,
        system: System,
        share: f64,
        load: &LoadOptions,
        server: &Server,
        stop: &AtomicBool,
    ) -> io::Result<Sample> {
        calibrate::settle(load)?;
        let mut usage = Usage::of(server.pid(), load.warmup);
        let bystanders = Bystanders::watch(&[server.pid(), std::process::id()]);
        let begin = Instant::now();
        let run =
            measure(load, share * self.calibrated.saturation, [None; Op::ALL.len()], |moment| {
                usage.record(moment);
                !stop.load(Ordering::Relaxed)
            })
            .map_err(io::Error::other)?;
        let others = bystanders.used().as_secs_f64() / begin.elapsed().as_secs_f64();
        Ok(Sample { system, share, run, cpu: usage.percent(), others })
    }
}

/// Retries after timeouts, unless `stop` is set.
fn retry_on_timeout<T>(
    stop: &AtomicBool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            done => return done,
        }
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    attempt()
}

/// Adds the server's output to the error, with the same kind.
fn with_server_output(error: io::Error, server: &Server) -> io::Error {
    let said = server.said();
    if said.is_empty() { error } else { io::Error::new(error.kind(), format!("{error}{said}")) }
}

/// CPU time of the server within the measured window.
struct Usage {
    server: u32,
    warmup: Ns,
    begin: Option<(Ns, Ns)>,
    end: Option<(Ns, Ns)>,
}

impl Usage {
    fn of(server: u32, warmup: Ns) -> Usage {
        Usage { server, warmup, begin: None, end: None }
    }

    /// Reads only twice: each reading stalls the sender for some 20 us.
    fn record(&mut self, moment: Moment<'_>) {
        let reading = || cpu_time(self.server).ok().map(|used| (moment.now, used));
        if self.begin.is_none() && moment.now >= self.warmup {
            self.begin = reading();
        }
        if self.end.is_none() && moment.now >= moment.end {
            self.end = reading();
        }
    }

    fn percent(&self) -> Option<f64> {
        let ((from, before), (to, after)) = self.begin.zip(self.end)?;
        Some((after - before).as_secs_f64() / (to - from).as_secs_f64().max(1e-9) * 100.0)
    }
}

impl Sample {
    /// Why the run must not be quoted, in one line; `None` if it is valid.
    pub(super) fn invalid(&self) -> Option<String> {
        let disturbed = self.others > MOST_OTHERS;
        let said = || format!("others used {:.1} % of a CPU", self.others * 100.0);
        self.run.invalid().or_else(|| disturbed.then(said))
    }

    /// A line of the live table.
    pub(super) fn line(&self) -> String {
        let time =
            |op, percent| human(self.run.tally.op(op).latency.percentile(percent).0 as f64, "ns");
        let mark = self.invalid().map_or(String::new(), |why| format!("  ! {why}"));
        format!(
            "  {:<18} {:>3.0} %  short p50 {:>8}  p99 {:>8}  p99.9 {:>8}  long p50 {:>8}  p99 {:>8}{mark}",
            self.system.to_string(),
            self.share * 100.0,
            time(Op::Get, 50.0),
            time(Op::Get, 99.0),
            time(Op::Get, 99.9),
            time(Op::Scan, 50.0),
            time(Op::Scan, 99.0),
        )
    }
}
