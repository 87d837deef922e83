//! A latency-critical program that sleeps for a millisecond, again and again, and computes for a little while.

use crate::share::setup::{Status, Waits};
use crate::threads::child::preemption::work;
use heddle::Runtime;
use heddle::time::{now, sleep_until};
use heddle_core::Ns;
use heddle_metrics::Histogram;
use heddle_sys::thread::pin;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::thread;

/// How long it sleeps.
const PERIOD: Ns = Ns::from_ms(1);
/// How long it computes.
const BUSY_US: f64 = 20.0;
/// The first wake-ups find cold caches.
const WARMUP: u64 = 20;

/// The measurement of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::share) struct Sleeper {
    pub(in crate::share) cpu: u32,
    pub(in crate::share) time_ns: u64,
    /// Steps of work in a microsecond.
    pub(in crate::share) steps_per_us: f64,
    pub(in crate::share) policy: String,
    /// This program.
    pub(in crate::share) program: PathBuf,
    /// The file and the socket of a share.
    pub(in crate::share) share: Option<(PathBuf, PathBuf)>,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::share) struct Woken {
    /// How long after it was due the task ran.
    pub(in crate::share) late: Histogram,
    /// What the broker reports: the mean wait for the CPU and the longest.
    pub(in crate::share) waits_ns: Option<(f64, f64)>,
    /// Waits for the CPU, by the powers of two that are above them.
    pub(in crate::share) waits: Vec<u64>,
}

/// Measures. The first thread stays on the CPU of the others.
pub(super) fn measure(sleeper: &Sleeper) -> io::Result<Woken> {
    let there = || {
        pin(&[sleeper.cpu])?;
        let runtime = runtime(sleeper)?;
        let (time, steps) = (Ns(sleeper.time_ns), (sleeper.steps_per_us * BUSY_US) as u64);
        let late = runtime.run(move || wake_ups(time, steps));
        Ok((late, runtime.share_waits().first().map_or(Vec::new(), |waits| waits.to_vec())))
    };
    let (late, classes) = thread::scope(|scope| scope.spawn(there).join())
        .unwrap_or_else(|_| Err(io::Error::other("the sleeping thread panicked")))?;
    let waits = match &sleeper.share {
        // The process is a member for as long as it lives.
        Some((file, _)) => Status::of(&sleeper.program, file)?.waits(std::process::id()),
        None => None,
    };
    let waits_ns = waits.map(|Waits { mean_ns, longest_ns }| (mean_ns, longest_ns));
    Ok(Woken { late, waits_ns, waits: classes })
}

fn runtime(sleeper: &Sleeper) -> io::Result<Runtime> {
    let builder = Runtime::builder().policy(&sleeper.policy);
    let builder = match &sleeper.share {
        Some((_, socket)) => builder.share(socket, "lc", "sleeper"),
        None => Ok(builder.workers(1)),
    };
    builder.and_then(heddle::RuntimeBuilder::build).map_err(io::Error::other)
}

fn wake_ups(time: Ns, steps: u64) -> Histogram {
    let mut late = Histogram::new();
    let end = now() + time;
    for round in 0_u64.. {
        let due = now() + PERIOD;
        if due > end {
            break;
        }
        sleep_until(due);
        let lateness = now() - due;
        if round >= WARMUP {
            late.record(lateness);
        }
        work(steps);
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_counted_without_a_share() {
        let sleeper = Sleeper {
            cpu: heddle_sys::thread::affinity().unwrap()[0],
            time_ns: 100_000_000,
            steps_per_us: 1.0,
            policy: "two-queue:quantum=100us".into(),
            program: "/bin/false".into(),
            share: None,
        };
        let woken = measure(&sleeper).unwrap();
        assert_eq!((woken.waits_ns, woken.waits.len()), (None, 0));
        let least = Sleeper { time_ns: 0, ..sleeper };
        assert!(measure(&least).unwrap().late.is_empty());
    }
}
