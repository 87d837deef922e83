//! A load of hogs and a periodic thread, in a separate process.

use super::hog::{HogReport, hog};
use super::periodic::{PeriodicReport, PeriodicSpec, periodic};
use super::window::Window;
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, thread as kernel};
use rustix::process::nice;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle};

/// The threads to run. Hogs are named `be-hog-N`, the periodic thread `lc-periodic`: class rules match names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Threads that want a CPU all the time.
    pub hogs: usize,
    /// Their nice value.
    pub nice: i32,
    /// Whether they are `SCHED_IDLE`.
    #[serde(default)]
    pub idle: bool,
    /// A thread with little work.
    pub periodic: Option<PeriodicSpec>,
    /// The CPUs of all threads, unless an enclave sets them; empty: all.
    pub cpus: Vec<u32>,
    /// CPUs to which a separate thread pins the hogs in turn, as fast as it can.
    pub toggle: Vec<u32>,
    /// Warm-up, ns.
    pub warmup_ns: u64,
    /// Duration that counts, ns.
    pub duration_ns: u64,
}

/// The report of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// The periodic thread's.
    pub periodic: Option<PeriodicReport>,
    /// Each hog's.
    pub hogs: Vec<HogReport>,
    /// Number of affinity changes.
    pub toggled: u64,
    /// When the window began, ns of the monotonic clock.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
}

impl LoadReport {
    /// The largest deviation of a hog from the mean of all, in per cent of that mean.
    #[must_use]
    pub fn share_error_percent(&self) -> f64 {
        let used = || self.hogs.iter().map(|hog| hog.cpu_ns as f64);
        let mean = used().sum::<f64>() / self.hogs.len() as f64;
        used().map(|used| (used / mean - 1.0).abs() * 100.0).fold(f64::NAN, f64::max)
    }

    /// The hogs' total share of one CPU, in per cent.
    #[must_use]
    pub fn hogs_percent(&self) -> f64 {
        let used: u64 = self.hogs.iter().map(|hog| hog.cpu_ns).sum();
        used as f64 / (self.end - self.begin) as f64 * 100.0
    }

    /// Hogs that did not run within the last `within` of the load.
    #[must_use]
    pub fn lost(&self, within: Ns) -> usize {
        self.hogs.iter().filter(|hog| hog.last + within.0 < self.end).count()
    }
}

/// Runs the load.
///
/// # Errors
/// The CPUs do not exist; a thread cannot be created.
pub fn run(spec: &LoadSpec) -> io::Result<LoadReport> {
    if !spec.cpus.is_empty() {
        kernel::pin(&spec.cpus)?;
    }
    let begin = clock::now() + Ns(spec.warmup_ns);
    let window = Window { begin, end: begin + Ns(spec.duration_ns) };
    let (tid_sender, tids) = channel();
    let hogs: Vec<_> = (0..spec.hogs)
        .map(|k| {
            let (tid_sender, by, idle) = (tid_sender.clone(), spec.nice, spec.idle);
            named(&format!("be-hog-{k}"), move || {
                // Without the permission the nice value stays: the shares show it.
                let _ = nice(by);
                if idle {
                    let _ = scheduling::set(0, Scheduling::IDLE);
                }
                let _ = tid_sender.send(kernel::id());
                // The receiver has all thread IDs once every sender is dropped.
                drop(tid_sender);
                hog(window)
            })
        })
        .collect::<io::Result<_>>()?;
    drop(tid_sender);
    let worker = spec.periodic.map(|it| named("lc-periodic", move || periodic(it, window)));
    let toggler = toggler(spec, tids, window)?;
    let hogs = hogs.into_iter().map(ended).collect::<io::Result<_>>()?;
    let periodic = worker.transpose()?.map(ended).transpose()?;
    let toggled = toggler.map(ended).transpose()?.unwrap_or(0);
    Ok(LoadReport { periodic, hogs, toggled, begin: window.begin.0, end: window.end.0 })
}

fn named<T: Send + 'static>(
    name: &str,
    main: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(main)
}

fn ended<T>(thread: JoinHandle<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread of the load panicked"))
}

/// Ends a little before the threads that it moves.
fn toggler(
    spec: &LoadSpec,
    tids: Receiver<u32>,
    window: Window,
) -> io::Result<Option<JoinHandle<u64>>> {
    let Some((&first, _)) = spec.toggle.split_first() else { return Ok(None) };
    let cpus = spec.toggle.clone();
    let margin = (window.end - window.begin) / 20;
    let toggle = move || {
        let tids: Vec<u32> = tids.into_iter().collect();
        let mut toggled = 0;
        while clock::now() + margin < window.end {
            for &tid in &tids {
                let cpu = cpus.get(toggled as usize % cpus.len()).copied().unwrap_or(first);
                toggled += u64::from(confine(tid, &[cpu]));
            }
        }
        // Where it leaves them must not decide which gets the last CPU.
        for &tid in &tids {
            confine(tid, &cpus);
        }
        toggled
    };
    named("toggler", toggle).map(Some)
}

fn confine(tid: u32, cpus: &[u32]) -> bool {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu as usize));
    let pid = Pid::from_raw(tid.cast_signed());
    pid.is_some_and(|pid| sched_setaffinity(Some(pid), &set).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(shares: &[u64]) -> LoadReport {
        let hog = |&cpu_ns: &u64| HogReport { cpu_ns, ..HogReport::default() };
        LoadReport { hogs: shares.iter().map(hog).collect(), end: 1000, ..LoadReport::default() }
    }

    #[test]
    fn shares_are_held_against_equal_ones() {
        assert_eq!(of(&[300, 300, 300]).share_error_percent(), 0.0);
        assert!((of(&[200, 300, 400]).share_error_percent() - 100.0 / 3.0).abs() < 1e-9);
        assert!(of(&[]).share_error_percent().is_nan());
        assert_eq!(of(&[300, 300, 300]).hogs_percent(), 90.0);
    }

    #[test]
    fn a_hog_that_stopped_running_is_lost() {
        let mut report = of(&[1, 1]);
        (report.hogs[0].last, report.hogs[1].last) = (990, 100);
        assert_eq!(report.lost(Ns(50)), 1);
    }

    #[test]
    fn a_load_reports_every_thread() {
        let periodic =
            PeriodicSpec { period_ns: 2_000_000, work_ns: 1000, ..PeriodicSpec::default() };
        let spec = LoadSpec {
            hogs: 2,
            nice: 1,
            periodic: Some(periodic),
            toggle: kernel::affinity().unwrap(),
            warmup_ns: 1_000_000,
            duration_ns: 100_000_000,
            ..LoadSpec::default()
        };
        let report = run(&spec).unwrap();
        assert_eq!(report.hogs.len(), 2);
        assert!(report.toggled > 0);
        assert!(report.hogs.iter().all(|hog| hog.cpu_ns > 0 && hog.last >= report.end));
        // Periods of 2 ms in 100 ms, and one at each end; on a busy machine the thread can start late.
        assert!((1..=51).contains(&report.periodic.clone().unwrap().delays.count()));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<LoadReport>(&text).unwrap(), report);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let spec = LoadSpec { cpus: vec![1023], ..LoadSpec::default() };
        std::thread::spawn(move || assert!(run(&spec).is_err())).join().unwrap();
    }
}
