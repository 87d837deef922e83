//! One run: the server with antagonists under one system, and its load.

use super::super::colocated::{Colocated, Share};
use super::super::generator::Generator;
use super::super::launch::Launcher;
use super::super::system::System;
use super::ServerOptions;
use crate::kv::{Calibrated, StoreKind, calibrate, launch, workdir};
use heddle_core::Ns;
use heddle_load::{LoadOptions, LoadRun, Op, Pace, Shape, Wire, measure, unloaded_service};
use heddle_metrics::human;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a value.
const VALUE: usize = 100;
/// Warm-up: pools and caches fill, and agents learn of all threads.
const WARMUP: Ns = Ns::from_ms(500);
/// Time limit, after which a request is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
/// Attempts at measuring the saturation.
const TRIES: u32 = 4;

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
        let (_server, mut load) = self.start(&System::Default, 0, stop)?;
        let (scan_len, scan_service) = calibrate::scan_length(&load, self.options.scan_service)?;
        load.shape.scan_len = scan_len;
        let generator = Generator::on(self.options.load_cpu)?;
        load.pace = generator.pace();
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
        let (server, load) = self.start(system, self.options.antagonists, stop)?;
        let antagonists = server.antagonists()?;
        let unloaded = unloaded_service(&load).map_err(io::Error::other)?;
        let mut samples = Vec::new();
        for &share in &self.options.loads {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            calibrate::settle(&load)?;
            let rate = share * self.calibrated.saturation;
            let generator = Generator::on(self.options.load_cpu)?;
            let load = LoadOptions { pace: generator.pace(), ..load.clone() };
            let mut sample = point(&load, (round, share, rate), unloaded, antagonists, stop)?;
            sample.doubt = server.doubt();
            samples.push(sample);
        }
        Ok(samples)
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
        system: &System,
        antagonists: usize,
        stop: &AtomicBool,
    ) -> io::Result<(Colocated, LoadOptions)> {
        // A process inherits its parent's affinity, and an enclave takes no thread that cannot run on its CPUs.
        heddle_sys::thread::pin(&self.allowed)?;
        let on = (system, self.options.server_cpu);
        let program = self.server();
        let started =
            Colocated::start(self.launcher, on, antagonists, &program, stop, launch::ready);
        heddle_sys::thread::pin(&[self.options.load_cpu])?;
        let (server, target) = started?;
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

fn point(
    load: &LoadOptions,
    (round, share, rate): (u32, f64, f64),
    unloaded: [Option<Ns>; Op::ALL.len()],
    antagonists: u32,
    stop: &AtomicBool,
) -> io::Result<Sample> {
    let load = LoadOptions { seed: load.seed.wrapping_add(round.into()), ..load.clone() };
    let mut used = Share::of(antagonists, load.warmup);
    let run = measure(&load, rate, unloaded, |moment| {
        used.look(&moment);
        !stop.load(Ordering::Relaxed)
    })
    .map_err(io::Error::other)?;
    Ok(Sample { share, run, antagonists: used.percent(), doubt: None })
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
