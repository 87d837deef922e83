//! Interleaved rounds: for each round, for each system, for each load.
//!
//! One server runs at a time, on its CPUs; this process generates the load on its own CPU. Systems take turns
//! within a round, so changes on the machine affect all of them, and all get the same arrivals.

use super::calibrate::{self, Calibrated};
use super::launch;
use super::measured::{KvError, Measured, Sample, ScanRate};
use super::options::{KvOptions, QUIET_LOAD, QUIET_RUN, SCAN_RUN, WARMUP};
use super::process::{ServerProcess, StartError};
use super::scan_time::ScanTime;
use super::system::System;
use super::usage::cpu_time;
use super::workdir;
use heddle_core::Ns;
use heddle_load::{LoadError, LoadOptions, LoadRun, Mix, Op, measure, unloaded_service};
use heddle_metrics::{Progress, human};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// A running comparison.
pub struct Runner<'a> {
    options: &'a KvOptions,
    data: tempfile::TempDir,
    stop: &'a AtomicBool,
    progress: &'a mut Progress,
    measured: Measured,
    allowed: Vec<u32>,
}

/// Restores the CPUs: a description of the machine afterwards must not see only one.
impl Drop for Runner<'_> {
    fn drop(&mut self) {
        // They were allowed before. If that has changed, this process stays on its CPU.
        let _ = heddle_sys::thread::pin(&self.allowed);
    }
}

impl<'a> Runner<'a> {
    /// Creates the dataset and moves this process to the CPU of the load.
    ///
    /// # Errors
    /// [`KvError`]; the temporary directory is removed.
    pub fn prepare(
        options: &'a KvOptions,
        stop: &'a AtomicBool,
        progress: &'a mut Progress,
    ) -> Result<Runner<'a>, KvError> {
        options.check().map_err(KvError::Options)?;
        let allowed = heddle_sys::thread::affinity()?;
        if options.store == super::StoreKind::RocksDb {
            progress.step(&format!("dataset of {} keys", options.keys));
        }
        let dataset = (options.keys, options.value_len);
        let data = workdir::make_with_dataset(options.store, dataset)?;
        heddle_sys::thread::pin(&[options.cpus.load])?;
        Ok(Runner { options, data, stop, progress, measured: Measured::default(), allowed })
    }

    /// Measures everything. If `stop` is set, ends early with the measurements so far.
    ///
    /// # Errors
    /// [`KvError`]; no server is left running.
    pub fn run(mut self) -> Result<Measured, KvError> {
        match self.calibrate().and_then(|()| self.rounds()) {
            Err(KvError::Start { source: StartError::Interrupted, .. }) => {}
            Err(_) if self.stopped() => {}
            done => done?,
        }
        self.measured.interrupted = self.stopped();
        Ok(std::mem::take(&mut self.measured))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn rounds(&mut self) -> Result<(), KvError> {
        for round in 0..self.options.rounds {
            for system in 0..self.options.systems.len() {
                if self.stopped() {
                    return Ok(());
                }
                self.system_with_retry(round, system)?;
            }
        }
        Ok(())
    }

    /// Measures a system, and retries once if its server stops answering: one fault must not discard all measurements.
    fn system_with_retry(&mut self, round: u32, system: usize) -> Result<(), KvError> {
        let (samples, scans) = (self.measured.samples.len(), self.measured.scans.len());
        match self.system(round, system) {
            Err(error @ KvError::Load { .. }) if !self.stopped() => {
                self.progress.line(&format!("  {error}; retrying once"));
                self.measured.samples.truncate(samples);
                self.measured.scans.truncate(scans);
                self.system(round, system)
            }
            done => done,
        }
    }

    /// Calibrates on the system that saturates as a user would expect: run to completion, if it takes part.
    fn calibrate(&mut self) -> Result<(), KvError> {
        let systems = &self.options.systems;
        let reference = systems.iter().find(|s| s.is_fifo()).unwrap_or(&systems[0]);
        self.progress.step(&format!("calibration ({reference})"));
        let (server, mut load) = self.start(reference, 1)?;
        let options = self.options;
        let (cpus, mix) = (options.cpus.server.len(), &options.mix);
        let found = (|| {
            let get = calibrate::get_time(&load)?;
            let target = options.scan.target(get);
            let (scan_len, scan_service) = match options.scan {
                _ if mix.share(Op::Scan) == 0.0 => (1, Ns::ZERO),
                ScanTime::Time(_) => calibrate::scan_length(&load, target)?,
                // On a busy machine a GET takes four times as long, and a SCAN of all keys is no thousand of them.
                ScanTime::Gets(_) => calibrate::scan_length_or_all(&load, target)?,
            };
            self.measured.get_service = Some(get);
            load.shape.scan_len = scan_len;
            let saturation = calibrate::saturation(&load, cpus, self.stop)?;
            Ok(saturation.map(|saturation| Calibrated { scan_len, scan_service, saturation }))
        })();
        self.measured.calibrated = found.map_err(|e| failed(reference, e, &server))?;
        if let Some(c) = self.measured.calibrated {
            let took = human(c.scan_service.0 as f64, "ns");
            let (keys, most) = (c.scan_len, human(c.saturation, "1/s"));
            let line = format!("a SCAN reads {keys} keys in {took}; saturation at {most}");
            self.progress.line(&line);
            self.measured.ratio_in_words().iter().for_each(|line| self.progress.line(line));
        }
        Ok(())
    }

    fn system(&mut self, round: u32, index: usize) -> Result<(), KvError> {
        let Some(calibrated) = self.measured.calibrated else { return Ok(()) };
        let system = &self.options.systems[index];
        self.progress.step(&format!("round {}: {system}", round + 1));
        let (server, load) = self.start(system, calibrated.scan_len)?;
        let network = |e| failed(system, e, &server);
        let unloaded = unloaded_service(&load).map_err(|e| failed_load(system, e, &server))?;
        for (at, fraction) in self.options.loads.iter().enumerate() {
            if self.stopped() {
                return Ok(());
            }
            calibrate::settle(&load).map_err(network)?;
            let rate = fraction * calibrated.saturation;
            let (run, cpu) = self
                .point(&load, round, rate, unloaded, server.pid())
                .map_err(|e| failed_load(system, e, &server))?;
            self.progress.line(&line(round, system, *fraction, &run));
            self.measured.samples.push(Sample { round, system: index, load: at, run, cpu });
        }
        if system.is_two_queue() && self.options.mix.share(Op::Get) > 0.0 && !self.stopped() {
            calibrate::settle(&load).map_err(network)?;
            let quiet = self.quiet(&load, unloaded).map_err(|e| failed_load(system, e, &server))?;
            self.measured.quiet_p999.extend(quiet);
        }
        if self.options.mix.share(Op::Scan) > 0.0 && !self.stopped() {
            calibrate::settle(&load).map_err(network)?;
            let cpus = self.options.cpus.server.len();
            let rate = calibrate::capacity(&load, Op::Scan, cpus, SCAN_RUN, self.stop);
            let rate = rate.map_err(network)?;
            self.measured.scans.extend(rate.map(|rate| ScanRate { round, system: index, rate }));
        }
        Ok(())
    }

    fn point(
        &mut self,
        load: &LoadOptions,
        round: u32,
        rate: f64,
        unloaded: [Option<Ns>; Op::ALL.len()],
        server: u32,
    ) -> Result<(LoadRun, Option<f64>), LoadError> {
        let load = LoadOptions { seed: load.seed.wrapping_add(round.into()), ..load.clone() };
        let (mut begin, mut end, mut last) = (None, None, Ns::ZERO);
        let run = measure(&load, rate, unloaded, |moment| {
            last = moment.now;
            // Read only twice: each reading delays the sender by about 20 us.
            if begin.is_none() && moment.now >= load.warmup {
                begin = Some((moment.now, cpu_time(server).unwrap_or_default()));
            }
            if end.is_none() && moment.now >= moment.end {
                end = Some((moment.now, cpu_time(server).unwrap_or_default()));
            }
            !self.stop.load(Ordering::Relaxed)
        })?;
        // A run whose last request is answered early ends early.
        let end = end.or_else(|| Some((last, cpu_time(server).ok()?)));
        let used = begin.zip(end).map(|((from, before), (to, after))| {
            (after - before).as_secs_f64() / (to - from).as_secs_f64().max(1e-9) * 100.0
        });
        Ok((run, used))
    }

    /// Returns the p99.9 of few GETs alone, whose delays no scheduler causes. `None` if it was cut short.
    fn quiet(
        &self,
        load: &LoadOptions,
        unloaded: [Option<Ns>; Op::ALL.len()],
    ) -> Result<Option<Ns>, LoadError> {
        let go_on = || !self.stop.load(Ordering::Relaxed);
        let gets = Mix::only(Op::Get);
        let load = LoadOptions { mix: gets, duration: QUIET_RUN, ..load.clone() };
        let cpus = self.options.cpus.server.len();
        let most = calibrate::capacity(&load, Op::Get, cpus, WARMUP, self.stop)
            .map_err(|e| LoadError::Network(load.target, e))?;
        let Some(most) = most else { return Ok(None) };
        let run = measure(&load, most * QUIET_LOAD, unloaded, |_| go_on())?;
        Ok(go_on().then(|| run.tally.op(Op::Get).latency.p999()))
    }

    fn start(
        &self,
        system: &System,
        scan_len: u32,
    ) -> Result<(ServerProcess, LoadOptions), KvError> {
        let options = self.options;
        let command = launch::command(options, system, self.data.path());
        let repeat = launch::in_words(&command);
        let started = ServerProcess::start(&system.to_string(), command, self.stop, launch::ready);
        let (server, target) =
            started.map_err(|source| KvError::Start { source, command: repeat })?;
        Ok((server, options.load(target, scan_len)))
    }
}

/// A line of the live table.
fn line(round: u32, system: &System, fraction: f64, run: &LoadRun) -> String {
    let p = |op, percent| human(run.tally.op(op).latency.percentile(percent).0 as f64, "ns");
    let mark = run.invalid().map_or(String::new(), |why| format!("  ! {why}"));
    format!(
        "  {:<5}  {:<28} {:>3.0} %  GET p50 {:>8}  p99 {:>8}  p99.9 {:>8}  SCAN p99 {:>8}{mark}",
        format!("#{}", round + 1),
        system.to_string(),
        fraction * 100.0,
        p(Op::Get, 50.0),
        p(Op::Get, 99.0),
        p(Op::Get, 99.9),
        p(Op::Scan, 99.0),
    )
}

fn failed(system: &System, source: io::Error, server: &ServerProcess) -> KvError {
    KvError::Load { system: system.to_string(), source, said: server.said() }
}

fn failed_load(system: &System, error: LoadError, server: &ServerProcess) -> KvError {
    failed(system, io::Error::other(error), server)
}
