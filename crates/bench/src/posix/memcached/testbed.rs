//! Memcached under one system, and its load.

use heddle_sys::thread::SavedAffinity;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heddle_core::Ns;
use heddle_load::{
    Answer, Arrival, Arrivals, Closed, LoadRun, Mix, Op, Pace, Plan, RealClock, Shape, Streams,
    Transport, closed_loop, drive,
};
use heddle_metrics::human;
use tempfile::TempDir;

use super::super::daemon::Daemon;
use super::super::installed::MEMCACHED;
use super::super::launch;
use super::super::options::PosixOptions;
use super::super::system::System;
use super::super::turns;
use super::text::{self, Text};
use crate::kv::{Bystanders, Cpus, cpu_time};

/// Connections of the load, one request at a time on each.
pub(super) const CONNECTIONS: usize = 64;
/// The shares of the requests in the open loop.
pub(crate) const MIX: &str = "get=90,set=10";
pub(crate) const KEYS: usize = 10_000;
/// Bytes of a value.
pub(crate) const VALUE: usize = 100;
/// Time limit, after which a request is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
const WARMUP: Ns = Ns::from_ms(200);
/// An answer while preparing that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// State shared by all systems.
pub(super) struct Testbed<'a> {
    options: &'a PosixOptions,
    cpus: Cpus,
    folder: TempDir,
    server: PathBuf,
    /// Threads of the server.
    threads: usize,
    /// GETs per second that the kernel's server answers in a closed loop.
    pub(super) capacity: f64,
    _affinity: SavedAffinity,
}

/// One system in one round.
#[derive(Debug)]
pub(super) struct Sample {
    /// GETs per second in a closed loop.
    pub(super) operations: f64,
    /// The server's CPU time for each of them, the kernel's part included, in nanoseconds.
    pub(super) cost: f64,
    /// The open loop.
    pub(super) run: LoadRun,
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
        let most = human(self.operations, "1/s");
        format!("at most {most:>9}  get p50 {:>8}  p99 {:>8}", time(50.0), time(99.0))
    }
}

/// The CPUs of server and load: one for the server, because one client thread keeps no more busy.
///
/// # Errors
/// No CPU may be used.
pub(super) fn cpus(options: &PosixOptions) -> Result<Cpus, String> {
    let mut cpus = Cpus::divide(&options.cpus, None)?;
    cpus.server.truncate(1);
    Ok(cpus)
}

impl<'a> Testbed<'a> {
    /// Measures the capacity of a server with so many threads as kernel threads.
    ///
    /// # Errors
    /// The server is not installed, does not start or answer; interruption.
    pub(super) fn prepare(
        options: &'a PosixOptions,
        threads: usize,
        stop: &AtomicBool,
    ) -> io::Result<Testbed<'a>> {
        let mut testbed = Testbed {
            options,
            cpus: cpus(options).map_err(io::Error::other)?,
            folder: tempfile::Builder::new().prefix("heddle-memcached-").tempdir()?,
            server: MEMCACHED.find().map_err(io::Error::other)?,
            threads,
            capacity: 0.0,
            _affinity: SavedAffinity::save()?,
        };
        let (_server, address) = testbed.start(&System::Kernel, stop)?;
        testbed.capacity = testbed.operations(address, stop)?.0;
        Ok(testbed)
    }

    /// Starts a server with all keys. It chooses its port and writes it to a file.
    fn start(&self, system: &System, stop: &AtomicBool) -> io::Result<(Daemon, SocketAddr)> {
        heddle_sys::thread::pin(&[self.cpus.load])?;
        let (port, log) = (self.folder.path().join("port"), self.folder.path().join("log"));
        // The last server's.
        let _ = fs::remove_file(&port);
        let mut args: Vec<String> =
            ["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t"].map(str::to_owned).into();
        args.push(self.threads.to_string());
        if rustix::process::geteuid().is_root() {
            args.extend(["-u".to_owned(), "root".to_owned()]);
        }
        let mut command = launch::command(&self.options.program, system, &self.server, &args);
        command.env("MEMCACHED_PORT_FILENAME", &port);
        let ready = || address(&fs::read_to_string(&port).ok()?);
        let (server, address) = Daemon::start(&command, &self.cpus.server, &log, stop, ready)?;
        fill(address).map_err(|error| server.explain(&error))?;
        Ok((server, address))
    }

    fn shape() -> Shape {
        Shape::new(KEYS, 1, VALUE)
    }

    fn pace(&self) -> Pace {
        if self.cpus.shared { Pace::Sleep } else { Pace::Busy }
    }

    /// GETs per second in a closed loop, and how many were answered in all.
    fn operations(&self, address: SocketAddr, stop: &AtomicBool) -> io::Result<(f64, f64)> {
        let transport = Streams::<Text>::connect(address, CONNECTIONS, Self::shape())?;
        let mut counted = Counted { transport, answers: 0 };
        let closed = Closed {
            op: Op::Get,
            keys: KEYS,
            depth: CONNECTIONS,
            warmup: WARMUP.min(self.options.duration),
            duration: self.options.duration / 2,
        };
        let go_on = || !stop.load(Ordering::Relaxed);
        let mut clock = RealClock::start(self.pace());
        let rate = closed_loop(closed, &mut clock, &mut counted, go_on)?;
        let rate = rate.ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?;
        Ok((rate, counted.answers as f64))
    }

    /// Offered requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.capacity * self.options.load
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
        let bystanders = Bystanders::watch(&[server.pid(), std::process::id()]);
        let begin = Instant::now();
        let measure = || -> io::Result<_> {
            let before = cpu_time(server.pid())?;
            let (operations, count) = self.operations(address, stop)?;
            let cost = (cpu_time(server.pid())? - before).0 as f64 / count;
            Ok((operations, cost, self.offer(address, round, stop)?))
        };
        let (operations, cost, run) = measure().map_err(|error| server.explain(&error))?;
        let others = bystanders.used().as_secs_f64() / begin.elapsed().as_secs_f64();
        match stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(Sample { operations, cost, run, others }),
        }
    }

    fn offer(&self, address: SocketAddr, round: u32, stop: &AtomicBool) -> io::Result<LoadRun> {
        let warmup = WARMUP.min(self.options.duration);
        let plan = Plan { warmup, end: warmup + self.options.duration, timeout: TIMEOUT };
        let seed = self.options.seed.wrapping_add(round.into());
        let mix: Mix = MIX.parse().expect("a mix");
        let arrivals = Arrivals::new(seed, self.rate(), mix, KEYS);
        let mut transport = Streams::<Text>::connect(address, CONNECTIONS, Self::shape())?;
        let mut clock = RealClock::start(self.pace());
        let go_on = |_: heddle_load::Moment<'_>| !stop.load(Ordering::Relaxed);
        let way = (&mut clock, &mut transport as &mut dyn Transport);
        drive(plan, self.rate(), arrivals, way, [None; Op::ALL.len()], go_on)
    }

    /// A progress line.
    pub(super) fn in_words(&self) -> String {
        let (threads, most) = (self.threads, human(self.capacity, "1/s"));
        format!("  with {threads} threads the kernel's server answers {most} GETs")
    }
}

/// Connections that count their answers.
struct Counted {
    transport: Streams<Text>,
    answers: u64,
}

impl Transport for Counted {
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()> {
        self.transport.send(id, request)
    }

    fn receive(&mut self) -> io::Result<Option<Answer>> {
        let answer = self.transport.receive()?;
        self.answers += u64::from(answer.is_some());
        Ok(answer)
    }
}

/// `TCP INET: 40123`
pub(crate) fn address(text: &str) -> Option<SocketAddr> {
    let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: "))?;
    Some(SocketAddr::from(([127, 0, 0, 1], port.trim().parse().ok()?)))
}

/// Stores all keys. The answer to the last command says that those before it, which have none, are done.
pub(crate) fn fill(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let value = [b'v'; VALUE];
    let mut out = Vec::new();
    (0..KEYS as u64).for_each(|key| text::set(&mut out, key, &value, " noreply"));
    out.extend_from_slice(b"version\r\n");
    stream.write_all(&out)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match line.starts_with("VERSION ") {
        true => Ok(()),
        false => Err(io::Error::other(format!("memcached stores no keys: {}", line.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_file() {
        assert_eq!(address("TCP INET: 40123\nTCP INET6: 7\n").unwrap().port(), 40123);
        assert_eq!(address("UDP INET: 40123\n"), None);
        assert_eq!(address(""), None);
    }
}
