//! The machine that a result was measured on, without who owns it.

use std::fs;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The conditions of a measurement. Names of users and hosts are never among them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The processor, as it names itself; `unknown` where it does not.
    pub cpu: String,
    /// CPUs that this process may use (affinity and container limits counted in).
    pub cores: u32,
    /// The kernel's release, `6.12.3-amd64`.
    pub kernel: String,
    /// Whether a hypervisor is beneath: exits then add to signals, timers and idle wake-ups.
    pub virtualised: bool,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// When, in UTC: `2026-11-20T23:05:00Z`.
    pub date: String,
}

impl Machine {
    /// This machine, now. What the system does not tell is `unknown`, 0 or `false`.
    pub fn detect() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Machine {
            cpu: known(field(&cpuinfo, "model name").unwrap_or_default()),
            cores: thread::available_parallelism().map_or(0, |n| n.get() as u32),
            kernel: known(kernel.trim()),
            virtualised: has_flag(&cpuinfo, "hypervisor"),
            memory_mib: kib(field(&meminfo, "MemTotal").unwrap_or_default()) / 1024,
            date: utc(now.as_secs()),
        }
    }

    /// One line for people: processor, cores, memory, kernel, virtualised or not.
    pub fn summary(&self) -> String {
        let virtualised = if self.virtualised { ", virtual machine" } else { "" };
        let (cores, gib) = (self.cores, self.memory_mib as f64 / 1024.0);
        let plural = if cores == 1 { "" } else { "s" };
        format!(
            "{}, {cores} core{plural}, {gib:.1} GiB, Linux {}{virtualised}",
            self.cpu, self.kernel
        )
    }
}

fn known(text: &str) -> String {
    if text.is_empty() { "unknown".into() } else { text.into() }
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, v)| v.trim())
}

fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    field(cpuinfo, "flags").is_some_and(|flags| flags.split_ascii_whitespace().any(|f| f == flag))
}

fn kib(text: &str) -> u64 {
    text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Seconds since 1970 as `YYYY-MM-DDThh:mm:ssZ`.
fn utc(secs: u64) -> String {
    let (year, month, day) = civil(secs / 86_400);
    let (h, m, s) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

/// Days since 1970-01-01 as year, month and day. The year is counted from March, so that the leap day is
/// its last; 719,468 days lie between 0000-03-01 and 1970-01-01, 146,097 make 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(secs), text);
        }
    }

    #[test]
    fn reads_proc() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: fpu hypervisor sse\n";
        assert_eq!(field(cpuinfo, "model name"), Some("Some CPU @ 2.0GHz"));
        assert!(has_flag(cpuinfo, "hypervisor"));
        assert!(!has_flag(cpuinfo, "hyper"));
        assert_eq!(kib(field("MemTotal:       2048 kB\n", "MemTotal").unwrap()), 2048);
    }

    #[test]
    fn this_machine_is_described_and_anonymous() {
        let machine = Machine::detect();
        assert!(machine.cores > 0 && machine.date.ends_with('Z'));
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        // Very short names would be found by chance.
        if host.len() > 6 {
            assert!(!serde_json::to_string(&machine).unwrap().contains(host));
        }
    }
}
