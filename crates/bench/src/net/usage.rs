//! The CPU time of a run: both processes, the threads that handle softirqs, and softirqs.

use heddle_core::Ns;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::ops::Sub;

/// The unit of `/proc/stat`: 100 Hz for every program on x86-64 and arm64 (`USER_HZ`).
const TICK: Ns = Ns::from_ms(10);

/// CPU time used so far, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// The server's process.
    pub(super) server: u64,
    /// The client's, which is the caller.
    pub(super) client: u64,
    /// All `ksoftirqd` threads.
    pub(super) ksoftirqd: u64,
    /// Softirqs, on all CPUs and for whomever. Most kernels sample them at each tick and charge them to the task that
    /// they interrupt as well; see [`accounts_softirqs_apart`].
    pub(super) softirq: u64,
}

impl Usage {
    /// Reads them. `server` is its process id.
    ///
    /// # Errors
    /// The server has ended, or `/proc` cannot be read.
    pub(super) fn now(server: u32) -> io::Result<Usage> {
        Ok(Usage {
            server: process_time(server)?.0,
            client: process_time(std::process::id())?.0,
            // One whose CPU goes offline ends.
            ksoftirqd: ksoftirqd()
                .into_iter()
                .filter_map(|pid| process_time(pid).ok())
                .map(|t| t.0)
                .sum(),
            softirq: softirq(&fs::read_to_string("/proc/stat")?).0,
        })
    }

    /// Returns the CPU time of both ends, with softirqs exactly once.
    pub(super) fn both_ends(&self, softirqs_apart: bool) -> Ns {
        let softirq = if softirqs_apart { self.softirq } else { 0 };
        Ns(self.server + self.client + self.ksoftirqd + softirq)
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            server: self.server.saturating_sub(before.server),
            client: self.client.saturating_sub(before.client),
            ksoftirqd: self.ksoftirqd.saturating_sub(before.ksoftirqd),
            softirq: self.softirq.saturating_sub(before.softirq),
        }
    }
}

/// Returns the time that all threads of `pid` have run, to the scheduler's nanosecond.
///
/// # Errors
/// There is no such process.
pub(super) fn process_time(pid: u32) -> io::Result<Ns> {
    let mut sum = Ns::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += Ns(text.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or(0));
    }
    Ok(sum)
}

/// Returns the ids of the kernel's threads that handle softirqs, one for each CPU.
pub(super) fn ksoftirqd() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    pids.filter(is_one).collect()
}

/// The time of softirqs on all CPUs, in the text of `/proc/stat`.
fn softirq(stat: &str) -> Ns {
    let all = stat.lines().next().unwrap_or_default();
    let ticks = all.split_whitespace().nth(7).and_then(|field| field.parse().ok());
    TICK * ticks.unwrap_or(0_u64)
}

/// Returns whether the kernel leaves softirqs out of the time of the task that they interrupt
/// (`CONFIG_IRQ_TIME_ACCOUNTING`); false if it does not tell.
pub(super) fn accounts_softirqs_apart() -> bool {
    let config = std::process::Command::new("zcat").arg("/proc/config.gz").output();
    let config = config.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    config.is_ok_and(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softirqs_are_the_seventh_time() {
        let stat = "cpu  1 2 3 4 5 6 70 8 9 10\ncpu0 0 0 0 0 0 0 35 0 0 0\n";
        assert_eq!(softirq(stat), Ns::from_ms(700));
        assert_eq!(softirq(""), Ns::ZERO);
    }

    #[test]
    fn time_is_counted_once() {
        let usage = Usage { server: 1, client: 2, ksoftirqd: 4, softirq: 8 };
        assert_eq!((usage.both_ends(false), usage.both_ends(true)), (Ns(7), Ns(15)));
        assert_eq!((usage - usage).both_ends(true), Ns::ZERO);
        assert!(process_time(std::process::id()).unwrap() > Ns::ZERO);
        assert!(process_time(u32::MAX).is_err());
    }
}
