//! A latency-critical server and a batch program under one system, and the load.

use super::batch::Batch;
use super::cgroup::Groups;
use super::command;
use super::critical::{Running, Server};
use super::options::ShareOptions;
use super::part::Part;
use super::setup::{Share, Status, Waits};
use super::system::System;
use crate::kv::calibrate::of_mix;
use crate::kv::{Bystanders, cpu_time};
use crate::posix::programs::Program;
use crate::posix::turns;
use heddle_core::Ns;
use heddle_load::{
    Arrivals, Closed, LoadRun, Moment, Op, Pace, Plan, RealClock, Transport, closed_loop, drive,
};
use heddle_metrics::human;
use heddle_sys::thread::{SavedAffinity, pin};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Time limit, after which a request is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
const WARMUP: Ns = Ns::from_ms(300);
/// The capacity is the median of so many bursts: other work on the machine spoils one or two of them.
const BURSTS: usize = 5;
const BURST: Ns = Ns::from_ms(150);
/// Requests in flight where as many as possible are served.
const DEPTH: usize = 16;

/// State shared by all systems.
pub(super) struct Testbed<'a> {
    options: &'a ShareOptions,
    server: Server,
    /// Requests per second that the server can answer alone.
    pub(super) capacity: f64,
    _affinity: SavedAffinity,
}

/// One system in one round at one load.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) run: LoadRun,
    /// The batch program's steps per second.
    pub(super) steps: Option<f64>,
    /// The server's CPU time, as a share of one CPU.
    pub(super) busy: f64,
    /// How long the server waits for the CPU, as it says itself.
    pub(super) waits: Option<Waits>,
    /// CPU time of all processes that do not belong to the measurement, as a share of one CPU.
    pub(super) others: f64,
}

impl Sample {
    /// Why the run must not be quoted; `None` if it is valid.
    pub(super) fn invalid(&self) -> Option<String> {
        turns::problem(&self.run, self.others)
    }

    /// What a progress line says of it.
    pub(super) fn summary(&self) -> String {
        let latency = &self.run.tally.op(Op::Get).latency;
        let time = |percent| human(latency.percentile(percent).0 as f64, "ns");
        let steps = self.steps.map_or("none".into(), |steps| human(steps, "1/s"));
        format!(
            "p50 {:>8}  p99 {:>8}  p99.9 {:>8}  batch {steps:>9}",
            time(50.0),
            time(99.0),
            time(99.9)
        )
    }
}

/// The two programs of a run and what they need. They end in this order: beside the batch program the server might not.
struct Pair {
    batch: Option<Batch>,
    server: Running,
    _groups: Option<Groups>,
    share: Option<Share>,
}

impl<'a> Testbed<'a> {
    /// Measures what the server can do alone.
    ///
    /// # Errors
    /// It does not start or answer; interruption.
    pub(super) fn prepare(
        options: &'a ShareOptions,
        part: Part,
        stop: &AtomicBool,
    ) -> io::Result<Testbed<'a>> {
        let _affinity = SavedAffinity::save()?;
        let server = match part {
            Part::Memcached => Server::memcached()?,
            Part::RocksDb => Server::rocksdb(options)?,
            _ => Server::plain(options, stop)?,
        };
        pin(&[options.cpus.load])?;
        let mut testbed = Testbed { options, server, capacity: 1.0, _affinity };
        // `heddle run` may be impossible here.
        let here = options.turns(part, 0).contains(&System::Alone);
        let system = if here { System::Alone } else { System::Kernel };
        let running = testbed.server.start(options, system, None, stop)?;
        testbed.server.calibrate(running.address)?;
        testbed.capacity = testbed.most(&running, stop)?;
        Ok(testbed)
    }

    /// Requests per second that the server can answer, from each operation alone.
    fn most(&self, running: &Running, stop: &AtomicBool) -> io::Result<f64> {
        let mix = self.server.mix();
        let rate = |op| Ok((op, self.most_of(op, running, stop)?));
        let rates = mix.ops().map(rate).collect::<io::Result<Vec<_>>>()?;
        Ok(of_mix(&mix, &rates))
    }

    /// The median of several bursts of `op` in a closed loop.
    fn most_of(&self, op: Op, running: &Running, stop: &AtomicBool) -> io::Result<f64> {
        let mut rates = Vec::with_capacity(BURSTS);
        for _ in 0..BURSTS {
            let mut transport = self.server.connect(running.address)?;
            let mut clock = RealClock::start(Pace::Busy);
            let closed = Closed {
                op,
                keys: self.server.keys(),
                // Long requests that share a CPU end at the same time, and a burst would have a bunch more or less.
                depth: if op == Op::Scan { 1 } else { DEPTH },
                warmup: BURST / 5,
                duration: BURST,
            };
            let go_on = || !stop.load(Ordering::Relaxed);
            let rate = closed_loop(closed, &mut clock, &mut *transport, go_on)?;
            rates.push(rate.ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?);
        }
        rates.sort_by(f64::total_cmp);
        Ok(rates[BURSTS / 2])
    }

    /// Offered requests per second at a load.
    pub(super) fn rate(&self, load: f64) -> f64 {
        self.capacity * load
    }

    /// The batch program's steps per second if it has the CPU for itself.
    ///
    /// # Errors
    /// It does not start or answer.
    pub(super) fn batch_alone(&self) -> io::Result<f64> {
        let mut batch = self.start_batch(System::Kernel, None)?;
        let before = batch.progress()?;
        thread::sleep((self.options.duration / 2).into());
        Ok(batch.progress()?.rate_since(before))
    }

    fn start_batch(&self, system: System, share: Option<&Share>) -> io::Result<Batch> {
        let program = self.options.programs.path(Program::Batch)?;
        let (command, placement) = command::batch(self.options, system, share, &program);
        Batch::start(command, &placement)
    }

    fn start(&self, system: System, stop: &AtomicBool) -> io::Result<Pair> {
        let options = self.options;
        let cpus = (options.cpu(), options.cpus.load);
        let start = |realtime| Share::start(&options.program, cpus, realtime, stop);
        let share = command::realtime(system).map(start).transpose()?;
        let groups = (system == System::Cgroup).then(Groups::make).transpose()?;
        let server = self.server.start(options, system, share.as_ref(), stop)?;
        let batch = system.has_batch().then(|| self.start_batch(system, share.as_ref()));
        let batch = batch.transpose()?;
        if let (Some(groups), Some(batch)) = (&groups, &batch) {
            groups.take_critical(server.pid())?;
            groups.take_batch(batch.pid())?;
        }
        Ok(Pair { batch, server, _groups: groups, share })
    }

    /// Measures fresh programs.
    ///
    /// # Errors
    /// They do not start, or stop answering; interruption.
    pub(super) fn measure(
        &self,
        system: System,
        (load, round): (f64, u32),
        stop: &AtomicBool,
    ) -> io::Result<Sample> {
        let mut pair = self.start(system, stop)?;
        let sample = self.observe(&mut pair, (load, round), stop);
        let sample = sample.map_err(|error| pair.server.explain(&error))?;
        match stop.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(sample),
        }
    }

    fn observe(
        &self,
        pair: &mut Pair,
        (load, round): (f64, u32),
        stop: &AtomicBool,
    ) -> io::Result<Sample> {
        let pid = pair.server.pid();
        let bystanders = Bystanders::watch(&pair.processes());
        let (begin, busy) = (Instant::now(), cpu_time(pid)?);
        let before = pair.batch.as_mut().map(Batch::progress).transpose()?;
        let run = self.offer(&pair.server, self.rate(load), round, stop)?;
        let after = pair.batch.as_mut().map(Batch::progress).transpose()?;
        let wall = begin.elapsed().as_secs_f64();
        Ok(Sample {
            run,
            steps: after.zip(before).map(|(after, before)| after.rate_since(before)),
            busy: (cpu_time(pid)? - busy).as_secs_f64() / wall,
            others: bystanders.used().as_secs_f64() / wall,
            waits: match &pair.share {
                Some(share) => Status::of(&self.options.program, &share.file())?.waits(pid),
                None => None,
            },
        })
    }

    fn offer(
        &self,
        server: &Running,
        rate: f64,
        round: u32,
        stop: &AtomicBool,
    ) -> io::Result<LoadRun> {
        let warmup = WARMUP.min(self.options.duration);
        let plan = Plan { warmup, end: warmup + self.options.duration, timeout: TIMEOUT };
        let seed = self.options.seed.wrapping_add(round.into());
        let arrivals = Arrivals::new(seed, rate, self.server.mix(), self.server.keys());
        let mut transport = self.server.connect(server.address)?;
        let mut clock = RealClock::start(Pace::Busy);
        let go_on = |_: Moment<'_>| !stop.load(Ordering::Relaxed);
        let way = (&mut clock, &mut *transport as &mut dyn Transport);
        drive(plan, rate, arrivals, way, [None; Op::ALL.len()], go_on)
    }
}

impl Pair {
    /// The processes that belong to the measurement.
    fn processes(&self) -> Vec<u32> {
        let broker = self.share.as_ref().map(Share::pid);
        let batch = self.batch.as_ref().map(Batch::pid);
        let all = [Some(std::process::id()), Some(self.server.pid()), batch, broker];
        all.into_iter().flatten().collect()
    }
}
