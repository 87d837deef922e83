//! A thread with a little work at fixed times.

use super::window::Window;
use heddle_core::Ns;
use heddle_metrics::Histogram;
use heddle_sys::clock;
use heddle_sys::scheduling::{self, Scheduling};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, set_current_timer_slack};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Parameters of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeriodicSpec {
    /// Period, ns.
    pub period_ns: u64,
    /// Work per period, ns.
    pub work_ns: u64,
    /// Whether it asks the default scheduler for its shortest slice, with which a thread is preempted sooner
    /// (Linux 6.12).
    pub short_slice: bool,
    /// Whether it is `SCHED_FIFO` 1. It has a limit on its time then.
    #[serde(default)]
    pub fifo: bool,
}

/// Delays of the thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeriodicReport {
    /// From when the timer was due to the first instruction of the thread.
    pub delays: Histogram,
    /// Why it did not run.
    #[serde(default)]
    pub failed: Option<String>,
}

/// Works until the window ends. Periods that fall due while the thread is late count as late too.
pub(super) fn periodic(spec: PeriodicSpec, window: Window) -> PeriodicReport {
    // Neither failure is fatal: sleeps are then longer by the slack, which is part of the measurement.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    if spec.short_slice {
        heddle_sys::thread::make_punctual();
    }
    if spec.fifo {
        // Longer than any run: it ends a thread that spins by mistake, never a measurement.
        let limit_us = (window.end - clock::now()).0 / 1000 + 10_000_000;
        let made = scheduling::limit_realtime(limit_us)
            .and_then(|()| scheduling::set(0, Scheduling::fifo(1)));
        if let Err(error) = made {
            return PeriodicReport { failed: Some(error.to_string()), ..PeriodicReport::default() };
        }
    }
    let mut report = PeriodicReport::default();
    let mut due = clock::now() + Ns(spec.period_ns);
    while due < window.end {
        sleep_until(due);
        let now = clock::now();
        if due >= window.begin {
            report.delays.record(now - due);
        }
        while clock::now() < now + Ns(spec.work_ns) {}
        due += Ns(spec.period_ns);
    }
    report
}

/// Returns at once if `due` has passed.
fn sleep_until(due: Ns) {
    const SECOND: u64 = 1_000_000_000;
    let until = Timespec {
        tv_sec: i64::try_from(due.0 / SECOND).unwrap_or(i64::MAX),
        tv_nsec: (due.0 % SECOND).cast_signed(),
    };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}
