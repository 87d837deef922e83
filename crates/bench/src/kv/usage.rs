//! The CPU time of other processes.

use heddle_core::Ns;
use procfs::FromRead as _;
use procfs::process::Stat;
use std::collections::HashMap;
use std::fs;
use std::io;

/// The kernel's unit of time in `/proc`: 100 Hz for every program on x86-64 and arm64 (`USER_HZ`),
/// whatever the kernel's own tick is.
const TICK: Ns = Ns::from_ms(10);

/// Returns the time that the process `pid` has run so far, in user and in kernel mode, all threads together.
///
/// # Errors
/// There is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Ns> {
    // `Process::stat` would open the folder first: 12 us instead of 10.
    let stat = Stat::from_file(format!("/proc/{pid}/stat")).map_err(io::Error::other)?;
    Ok(TICK * (stat.utime + stat.stime))
}

/// The CPU time of all other threads on the machine, to see afterwards how much of a measurement's CPUs they took.
/// Exact to the microsecond (`/proc/*/task/*/schedstat`, which procfs does not list in bulk). A thread that starts and
/// ends in between is missed.
#[derive(Debug)]
pub struct Bystanders {
    ours: Vec<u32>,
    before: HashMap<(u32, u32), Ns>,
}

impl Bystanders {
    /// Starts counting now; `ours` are the processes that belong to the measurement.
    #[must_use]
    pub fn watch(ours: &[u32]) -> Bystanders {
        Bystanders { ours: ours.to_vec(), before: others(ours) }
    }

    /// Returns the CPU time that they have used since.
    #[must_use]
    pub fn used(&self) -> Ns {
        self.used_by_thread().fold(Ns::ZERO, |sum, (_, used)| sum + used)
    }

    /// What each of their threads, given by process and thread, has used since.
    fn used_by_thread(&self) -> impl Iterator<Item = ((u32, u32), Ns)> {
        let since = |(thread, now): (_, Ns)| {
            let before = self.before.get(&thread).map_or(0, |before| before.0);
            (thread, Ns(now.0.saturating_sub(before)))
        };
        others(&self.ours).into_iter().map(since)
    }
}

/// The time that each thread of all processes but `ours` has run. Threads that end meanwhile are left out.
fn others(ours: &[u32]) -> HashMap<(u32, u32), Ns> {
    let mut used = HashMap::new();
    for pid in numbers("/proc").filter(|pid| !ours.contains(pid)) {
        let tasks = format!("/proc/{pid}/task");
        for tid in numbers(&tasks) {
            let ran = fs::read_to_string(format!("{tasks}/{tid}/schedstat")).ok();
            let ran = ran.and_then(|text| text.split(' ').next()?.parse().ok());
            used.extend(ran.map(|ran| ((pid, tid), Ns(ran))));
        }
    }
    used
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_run() {
        assert!(cpu_time(std::process::id()).is_ok());
        assert!(cpu_time(u32::MAX).is_err());
    }

    #[test]
    fn what_others_use_is_counted_and_what_we_use_is_not() {
        let mut other =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (with, without) = (
            Bystanders::watch(&[std::process::id()]),
            Bystanders::watch(&[std::process::id(), other.id()]),
        );
        let begin = cpu_time(other.id()).unwrap();
        while cpu_time(other.id()).unwrap() < begin + Ns::from_ms(50) {}
        let of = |watch: &Bystanders, pid| -> Vec<Ns> {
            watch.used_by_thread().filter(|(id, _)| id.0 == pid).map(|(_, used)| used).collect()
        };
        let (seen, unseen) = (of(&with, other.id()), of(&without, other.id()));
        let ours = of(&with, std::process::id());
        other.kill().unwrap();
        other.wait().unwrap();
        // Ticks of 10 ms beside nanoseconds: at least the four whole ticks.
        assert!(seen.len() == 1 && seen[0] >= Ns::from_ms(40), "{seen:?}");
        assert!(unseen.is_empty() && ours.is_empty(), "{unseen:?} {ours:?}");
    }
}
