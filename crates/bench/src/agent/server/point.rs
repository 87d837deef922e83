//! One run: the server with antagonists under one system, and its load.

use super::super::child::{ANTAGONISTS, AntagonistSpec};
use super::super::launch::{Enclave, Launcher};
use super::super::system::System;
use super::ServerOptions;
use crate::kv::{Calibrated, ServerProcess, StoreKind, calibrate, cpu_time, launch, workdir};
use heddle_core::Ns;
use heddle_load::{LoadOptions, LoadRun, Op, Pace, Shape, Wire, measure, unloaded_service};
use heddle_metrics::human;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a value.
const VALUE: usize = 100;
/// Warm-up: pools and caches fill, and agents learn of all threads.
const WARMUP: Ns = Ns::from_ms(500);
/// Time limit, after which a request is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
/// Attempts at measuring the saturation.
const TRIES: u32 = 4;
/// Most time for an agent to start on an emulated machine.
const STARTING: Duration = Duration::from_secs(90);

/// The dataset, and the server's saturation without antagonists.
pub(super) struct Bench<'a> {
    options: &'a ServerOptions,
    launcher: &'a Launcher,
    data: tempfile::TempDir,
    calibrated: Calibrated,
    allowed: Vec<u32>,
}

/// The result of one system at one load.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// As a share of the saturation.
    pub(super) share: f64,
    pub(super) run: LoadRun,
    /// CPU time of the antagonists, in per cent of the CPU.
    pub(super) antagonists: Option<f64>,
    /// Why it must not be quoted, in addition to the load's own verdict.
    pub(super) doubt: Option<String>,
}

/// Restores the CPU affinity, as `heddle bench kv` does.
impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = heddle_sys::thread::pin(&self.allowed);
    }
}

impl<'a> Bench<'a> {
    /// Makes the dataset, moves this process to the CPU of the load, and measures the saturation.
    ///
    /// # Errors
    /// The server does not start; network errors.
    pub(super) fn prepare(
        options: &'a ServerOptions,
        launcher: &'a Launcher,
        stop: &AtomicBool,
    ) -> io::Result<Bench<'a>> {
        let data = workdir::make_with_dataset(options.store, (options.keys, VALUE));
        let data = data.map_err(io::Error::other)?;
        let allowed = heddle_sys::thread::affinity()?;
        let calibrated = Calibrated { scan_len: 1, scan_service: Ns::ZERO, saturation: 1.0 };
        let mut bench = Bench { options, launcher, data, calibrated, allowed };
        heddle_sys::thread::pin(&[options.load_cpu])?;
        // On a busy machine the server fails to answer now and then; a server that never answers is an error.
        let mut tries = 1..TRIES;
        while let Err(error) = bench.calibrate(stop) {
            if stop.load(Ordering::Relaxed) || tries.next().is_none() {
                return Err(error);
            }
        }
        Ok(bench)
    }

    fn calibrate(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let alone = self.launcher.alone(&self.with_antagonists(&System::Default, 0));
        let (_server, mut load) = self.start("the server", alone, stop)?;
        let (scan_len, scan_service) = calibrate::scan_length(&load, self.options.scan_service)?;
        load.shape.scan_len = scan_len;
        let saturation = calibrate::saturation(&load, 1, stop)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?;
        self.calibrated = Calibrated { scan_len, scan_service, saturation };
        Ok(())
    }

    /// A progress line.
    pub(super) fn in_words(&self) -> String {
        let Calibrated { scan_len, scan_service, saturation } = self.calibrated;
        let time = human(scan_service.0 as f64, "ns");
        let most = human(saturation, "1/s");
        format!("  a SCAN reads {scan_len} keys in {time}; saturation at {most} on one CPU")
    }

    /// All loads of one system, with antagonists.
    ///
    /// # Errors
    /// It does not start, or fell silent.
    pub(super) fn measure(
        &self,
        system: &System,
        round: u32,
        stop: &AtomicBool,
    ) -> io::Result<Vec<Sample>> {
        let program = self.with_antagonists(system, self.options.antagonists);
        let enclave = system.policy().map(|policy| self.enclave(system, policy));
        let command = match &enclave {
            Some(enclave) => self.launcher.under(enclave, &program),
            None => self.launcher.alone(&program),
        };
        let (server, load) = self.start(&system.to_string(), command, stop)?;
        let antagonists = enclave.as_ref().map_or(Ok(server.pid()), program_of)?;
        let unloaded = unloaded_service(&load).map_err(io::Error::other)?;
        let mut samples = Vec::new();
        for &share in &self.options.loads {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            calibrate::settle(&load)?;
            let rate = share * self.calibrated.saturation;
            let mut sample = point(&load, (round, share, rate), unloaded, antagonists, stop)?;
            sample.doubt = enclave.as_ref().and_then(given_back);
            samples.push(sample);
        }
        Ok(samples)
    }

    fn enclave(&self, system: &System, policy: &str) -> Enclave {
        let backend = match system {
            System::Agent { backend, .. } => *backend,
            _ => heddle_agent::guardian::Kind::Rt,
        };
        Enclave::new(backend, policy, &[self.options.server_cpu])
    }

    fn with_antagonists(&self, system: &System, antagonists: usize) -> Vec<String> {
        let options = self.options;
        let nice = if system == &System::Nice { 19 } else { 0 };
        let cpus = if system.policy().is_some() { Vec::new() } else { vec![options.server_cpu] };
        let program = self.server();
        self.launcher.child(ANTAGONISTS, &AntagonistSpec { antagonists, nice, cpus, program })
    }

    /// As typed on the command line.
    fn server(&self) -> Vec<String> {
        let options = self.options;
        let text = [
            "serve --system threads --udp 127.0.0.1:0 --tcp none --until-stdin-closes".to_owned(),
            format!("--workers {} --store {}", options.threads, options.store.name()),
            format!("--keys {} --value-size {VALUE}", options.keys),
        ]
        .join(" ");
        let mut words = vec![self.launcher.program.to_string_lossy().into_owned()];
        words.extend(text.split(' ').map(String::from));
        if options.store == StoreKind::RocksDb {
            words.extend(["--dir".into(), self.data.path().to_string_lossy().into_owned()]);
        }
        words
    }

    fn start(
        &self,
        name: &str,
        command: Command,
        stop: &AtomicBool,
    ) -> io::Result<(ServerProcess, LoadOptions)> {
        // A process inherits its parent's affinity, and an enclave takes no thread that cannot run on its CPUs.
        heddle_sys::thread::pin(&self.allowed)?;
        let started = ServerProcess::start(name, command, stop, launch::ready);
        heddle_sys::thread::pin(&[self.options.load_cpu])?;
        let (server, target) = started.map_err(io::Error::other)?;
        let keys = usize::try_from(self.options.keys).unwrap_or(usize::MAX);
        let load = LoadOptions {
            target,
            wire: Wire::Udp,
            mix: self.options.mix.clone(),
            shape: Shape::new(keys, self.calibrated.scan_len, VALUE),
            duration: self.options.duration,
            warmup: WARMUP,
            timeout: TIMEOUT,
            seed: 1,
            pace: Pace::for_spare_cpus(1),
        };
        Ok((server, load))
    }
}

/// The process with the antagonists, which the guardian started.
fn program_of(enclave: &Enclave) -> io::Result<u32> {
    let begin = Instant::now();
    while begin.elapsed() < STARTING {
        if let Some(pid) = enclave.find().and_then(|listed| listed.record.pid) {
            return Ok(pid);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("the enclave is not to be found"))
}

/// Why the enclave does not match the measurement, if it does not.
fn given_back(enclave: &Enclave) -> Option<String> {
    let Some(listed) = enclave.find() else { return Some("the enclave is gone".into()) };
    let active = listed.record.stage == heddle_agent::guardian::Stage::Active;
    (!active).then(|| listed.record.reason.unwrap_or_else(|| "no agent was there".into()))
}

fn point(
    load: &LoadOptions,
    (round, share, rate): (u32, f64, f64),
    unloaded: [Option<Ns>; Op::ALL.len()],
    antagonists: u32,
    stop: &AtomicBool,
) -> io::Result<Sample> {
    let load = LoadOptions { seed: load.seed.wrapping_add(round.into()), ..load.clone() };
    let (mut begin, mut end) = (None, None);
    let run = measure(&load, rate, unloaded, |moment| {
        let reading = || cpu_time(antagonists).ok().map(|used| (moment.now, used));
        if begin.is_none() && moment.now >= load.warmup {
            begin = reading();
        }
        if end.is_none() && moment.now >= moment.end {
            end = reading();
        }
        !stop.load(Ordering::Relaxed)
    })
    .map_err(io::Error::other)?;
    let used = begin.zip(end).map(|((from, before), (to, after))| {
        (after - before).as_secs_f64() / (to - from).as_secs_f64().max(1e-9) * 100.0
    });
    Ok(Sample { share, run, antagonists: used, doubt: None })
}

impl Sample {
    /// One progress line.
    pub(super) fn line(&self, system: &System) -> String {
        let p =
            |op, percent| human(self.run.tally.op(op).latency.percentile(percent).0 as f64, "ns");
        let why = self.invalid().map_or(String::new(), |why| format!("  ! {why}"));
        format!(
            "  {:24} {:>3.0} %  GET p50 {:>8}  p99 {:>8}  p99.9 {:>8}  SCAN p99 {:>8}  antagonists {:.0} % of \
             the CPU{why}",
            system.to_string(),
            self.share * 100.0,
            p(Op::Get, 50.0),
            p(Op::Get, 99.0),
            p(Op::Get, 99.9),
            p(Op::Scan, 99.0),
            self.antagonists.unwrap_or(f64::NAN)
        )
    }

    /// Why it must not be quoted, if it must not.
    pub(super) fn invalid(&self) -> Option<String> {
        self.doubt.clone().or_else(|| self.run.invalid())
    }
}
