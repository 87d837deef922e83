//! The CPU time of other processes.

use heddle_core::Ns;
use std::collections::HashMap;
use std::fs;
use std::io;

/// The kernel's unit of time in `/proc`: 100 Hz for every program on x86-64 and arm64 (`USER_HZ`),
/// whatever the kernel's own tick is.
const TICK: Ns = Ns::from_ms(10);

/// The time that the process `pid` has run so far, in user and in kernel mode, all threads together.
///
/// # Errors
/// Where there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Ns> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has another form")))
}

/// Fields 14 and 15. Field 2 is the program's name in parentheses and may itself hold blanks and
/// parentheses, so that counting starts behind the last one.
fn parse(stat: &str) -> Option<Ns> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

/// The CPU time of everybody else's threads, to see afterwards how much of a measurement's CPUs they had. Exact to the microsecond
/// (`/proc/*/task/*/schedstat`); a thread that began and ended in between is not seen.
#[derive(Debug)]
pub struct Bystanders {
    ours: Vec<u32>,
    before: HashMap<(u32, u32), Ns>,
}

impl Bystanders {
    /// From now on; `ours` are the processes that belong to the measurement.
    #[must_use]
    pub fn watch(ours: &[u32]) -> Bystanders {
        Bystanders { ours: ours.to_vec(), before: others(ours) }
    }

    /// What they have used since.
    #[must_use]
    pub fn used(&self) -> Ns {
        let since = |(thread, now): (_, Ns)| {
            Ns(now.0.saturating_sub(self.before.get(&thread).map_or(0, |before| before.0)))
        };
        others(&self.ours).into_iter().map(since).fold(Ns::ZERO, |sum, used| sum + used)
    }
}

/// The time that each thread has run, of all processes but `ours`. Who ends meanwhile is left out.
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
    fn the_name_of_a_program_does_not_matter() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 9 8 7";
        assert_eq!(parse(stat), Some(Ns::from_secs(3)));
        assert_eq!(parse("77 (cut"), None);
        assert_eq!(parse("77 (cut) S 1"), None);
    }

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
        // Others come and go: the two are read one after the other.
        let (less, more) = (without.used(), with.used());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(more >= less + Ns::from_ms(40), "{more:?} with it, {less:?} without");
    }
}
