//! The server under one system, and its load.

use heddle_sys::thread::SavedAffinity;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::client::{ByClass, CONNECTIONS};
use super::launch;
use super::options::PosixOptions;
use super::part::Part;
use super::process;
use super::rounds::busy_others;
use super::system::System;
use crate::kv::{Bystanders, Cpus, ServerProcess, StartError};
use heddle_core::Ns;
use heddle_load::{
    Arrivals, Closed, LoadOptions, LoadRun, Mix, Op, Pace, Plan, RealClock, Shape, Wire,
    closed_loop, drive,
};
use heddle_metrics::human;

/// Computation of a short request; parsing it and answering comes on top.
const GET: Ns = Ns::from_us(10);
/// Time limit, after which a request is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
const WARMUP: Ns = Ns::from_ms(300);
/// The saturation is the median of so many bursts: other work on the machine spoils one or two of them.
const BURSTS: usize = 5;
const BURST: Ns = Ns::from_ms(150);
/// The requests name one of so many keys; the server's work is the same for all.
const KEYS: usize = 1000;

/// The shares of the requests.
pub(super) const MIX: &str = "get=95,scan=5";

/// A server with the command line of `programs/server.c`.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) part: Part,
    /// Its name in results.
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// Arguments after the steps of computation.
    pub(super) args: Vec<String>,
}

/// State shared by all systems.
pub(super) struct Testbed<'a> {
    options: &'a PosixOptions,
    served: Served,
    cpus: Cpus,
    /// Steps of computation in a short and in a long request.
    loops: [u64; 2],
    /// The most requests of the mix per second that the kernel's server answers.
    pub(super) saturation: f64,
    _affinity: SavedAffinity,
}

/// One system in one round.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) run: LoadRun,
    /// CPU time of all processes beside server and load, as a share of one CPU.
    others: f64,
}

impl super::turns::Sample for Sample {
    fn invalid(&self) -> Option<String> {
        self.run.invalid().or_else(|| busy_others(self.others))
    }

    fn summary(&self) -> String {
        let time =
            |op, percent| human(self.run.tally.op(op).latency.percentile(percent).0 as f64, "ns");
        format!(
            "short p50 {:>8}  p99 {:>8}  p99.9 {:>8}  long p50 {:>8}",
            time(Op::Get, 50.0),
            time(Op::Get, 99.0),
            time(Op::Get, 99.9),
            time(Op::Scan, 50.0),
        )
    }
}

impl<'a> Testbed<'a> {
    /// Calibrates the server's work and its capacity as kernel threads.
    ///
    /// # Errors
    /// The server does not start or answer; interruption.
    pub(super) fn prepare(
        options: &'a PosixOptions,
        served: Served,
        stop: &AtomicBool,
    ) -> io::Result<Testbed<'a>> {
        let cpus = cpus(options)?;
        let _affinity = SavedAffinity::save()?;
        let ns_per_loop = ns_per_loop(&served.program, &cpus, stop)?;
        let loops = [GET, options.scan].map(|time| (time.0 as f64 / ns_per_loop).max(1.0) as u64);
        let mut testbed = Testbed { options, served, cpus, loops, saturation: 1.0, _affinity };
        let (_server, address) = testbed.start(&System::Kernel, stop)?;
        testbed.saturation = testbed.saturation(&testbed.load(address, 0), stop)?;
        Ok(testbed)
    }

    /// The requests of the mix per second that the server can answer, from each operation alone.
    fn saturation(&self, load: &LoadOptions, stop: &AtomicBool) -> io::Result<f64> {
        let cpus = self.cpus.server.len();
        // Long requests that share a CPU end at the same time, and a short window would count a bunch more or less.
        let get = self.capacity(load, (Op::Get, 8 * cpus, BURST), stop)?;
        let scan =
            self.capacity(load, (Op::Scan, cpus, BURST.max(self.options.scan * 50)), stop)?;
        Ok(1.0 / (load.mix.share(Op::Get) / get + load.mix.share(Op::Scan) / scan))
    }

    /// The median of several bursts of `op` in a closed loop, `depth` in flight.
    fn capacity(
        &self,
        load: &LoadOptions,
        (op, depth, duration): (Op, usize, Ns),
        stop: &AtomicBool,
    ) -> io::Result<f64> {
        let mut rates = Vec::with_capacity(BURSTS);
        for _ in 0..BURSTS {
            let mut transport = load.connect()?;
            let mut clock = RealClock::start(load.pace);
            let closed = Closed { op, keys: KEYS, depth, warmup: duration / 5, duration };
            let go_on = || !stop.load(Ordering::Relaxed);
            let rate = closed_loop(closed, &mut clock, &mut *transport, go_on)?;
            rates.push(rate.ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?);
        }
        rates.sort_by(f64::total_cmp);
        Ok(rates[BURSTS / 2])
    }

    /// Offered requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.saturation * self.options.load
    }

    /// A process inherits its parent's affinity.
    fn start(&self, system: &System, stop: &AtomicBool) -> io::Result<(ServerProcess, SocketAddr)> {
        let mut args = self.loops.map(|loops| loops.to_string()).to_vec();
        args.extend_from_slice(&self.served.args);
        if *system == System::KernelNice {
            args.push("--nice".into());
        }
        let command = launch::command(&self.options.program, system, &self.served.program, &args);
        heddle_sys::thread::pin(&self.cpus.server)?;
        let started =
            ServerProcess::start(&format!("{} ({system})", self.served.name), command, stop, ready);
        heddle_sys::thread::pin(&[self.cpus.load])?;
        started.map_err(|error| match error {
            StartError::Interrupted => io::ErrorKind::Interrupted.into(),
            other => io::Error::other(other),
        })
    }

    fn load(&self, target: SocketAddr, round: u32) -> LoadOptions {
        LoadOptions {
            target,
            wire: Wire::Http { connections: CONNECTIONS },
            mix: mix(),
            shape: Shape::new(KEYS, 1, 0),
            duration: self.options.duration,
            warmup: WARMUP.min(self.options.duration),
            timeout: TIMEOUT,
            seed: self.options.seed.wrapping_add(round.into()),
            pace: if self.cpus.shared { Pace::Sleep } else { Pace::Busy },
        }
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
        let (server, address) = self.start(system, stop)?;
        let load = self.load(address, round);
        let bystanders = Bystanders::watch(&[server.pid(), std::process::id()]);
        let begin = Instant::now();
        let run = offer(&load, self.rate(), stop)
            .map_err(|error| io::Error::new(error.kind(), format!("{error}{}", server.said())))?;
        let others = bystanders.used().as_secs_f64() / begin.elapsed().as_secs_f64();
        match stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(Sample { run, others }),
        }
    }

    /// A progress line.
    pub(super) fn in_words(&self) -> String {
        let [get, scan] = self.loops;
        let most = human(self.saturation, "1/s");
        format!(
            "  a GET computes {get} steps, a SCAN {scan}; the kernel's server saturates at {most}"
        )
    }
}

/// The CPUs of server and load.
///
/// # Errors
/// No CPU may be used.
pub(super) fn cpus(options: &PosixOptions) -> io::Result<Cpus> {
    Cpus::divide(&options.cpus, None).map_err(io::Error::other)
}

/// The mix of short and long requests.
pub(super) fn mix() -> Mix {
    MIX.parse().expect("a mix")
}

pub(crate) fn ns_per_loop(program: &Path, cpus: &Cpus, stop: &AtomicBool) -> io::Result<f64> {
    let mut command = Command::new(program);
    command.arg("--calibrate");
    let measured = process::measure(command, &cpus.server, None, stop)?;
    match measured.values.get("ns_per_loop") {
        Some(&ns) if ns > 0.0 => Ok(ns),
        _ => Err(io::Error::other("the server printed no ns_per_loop")),
    }
}

/// Offers `rate` requests per second, short and long ones on connections of their own.
fn offer(load: &LoadOptions, rate: f64, stop: &AtomicBool) -> io::Result<LoadRun> {
    load.check(rate).map_err(io::Error::other)?;
    let plan =
        Plan { warmup: load.warmup, end: load.warmup + load.duration, timeout: load.timeout };
    let arrivals = Arrivals::new(load.seed, rate, load.mix.clone(), load.shape.keys);
    let mut transport = ByClass::connect(load.target, &load.shape)?;
    let mut clock = RealClock::start(load.pace);
    let go_on = |_: heddle_load::Moment<'_>| !stop.load(Ordering::Relaxed);
    drive(plan, rate, arrivals, (&mut clock, &mut transport), [None; Op::ALL.len()], go_on)
}

/// `ready http=127.0.0.1:7391`
pub(crate) fn ready(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("ready http=")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_gives_the_address() {
        assert_eq!(ready("ready http=127.0.0.1:7391").unwrap().port(), 7391);
        assert_eq!(ready("ready udp=127.0.0.1:7391"), None);
    }
}
