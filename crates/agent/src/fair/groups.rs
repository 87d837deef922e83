//! Scheduling groups. The kernel shares CPU time between groups first; a nice value counts only within its thread's
//! group.
//!
//! A process is in the nearest cgroup with a weight of its own, if there is one; else, if `sched_autogroup_enabled`
//! is set, in the autogroup of its session (`sched(7)`); else with all other processes. The groups of
//! latency-critical processes are raised. Other groups are never lowered: between two groups that has the same
//! effect, and other processes of such a group were not put into the enclave.

use super::levels::LC_NICE;
use heddle_sys::processes;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// The weight that corresponds to [`LC_NICE`] in `cpu.shares`, where 1024 is nice 0.
const LC_SHARES: i64 = 29_154;

/// A scheduling group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Group {
    /// A session's, by the kernel's number.
    Autogroup(u64),
    /// A cgroup, by the file of its weight: `cpu.weight.nice` (version 2) or `cpu.shares` (version 1).
    Cgroup(PathBuf),
}

impl Group {
    /// Returns the group of a process; none if it is with all other processes.
    pub fn of(pid: u32) -> Option<Group> {
        if let Some(folder) = processes::cpu_cgroup(pid) {
            let files = ["cpu.weight.nice", "cpu.shares"].map(|name| folder.join(name));
            return files.into_iter().find(|file| file.exists()).map(Group::Cgroup);
        }
        autogroups_are_on().then(|| autogroup(pid)).flatten().map(|(id, _)| Group::Autogroup(id))
    }

    /// Returns the group's weight, in the unit of its file; `pid` is a member.
    pub fn weight(&self, pid: u32) -> Option<i64> {
        match self {
            Group::Autogroup(id) => autogroup(pid).filter(|(of, _)| of == id).map(|(_, nice)| nice),
            Group::Cgroup(file) => fs::read_to_string(file).ok()?.trim().parse().ok(),
        }
    }

    /// Sets the weight.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set(&self, pid: u32, weight: i64) -> std::io::Result<()> {
        match self {
            Group::Autogroup(_) => fs::write(format!("/proc/{pid}/autogroup"), weight.to_string()),
            Group::Cgroup(file) => fs::write(file, weight.to_string()),
        }
    }

    /// Returns the weight to raise the group to from `now`; none if it is high enough.
    pub fn raised(&self, now: i64) -> Option<i64> {
        let nice = i64::from(LC_NICE);
        match self {
            Group::Cgroup(file) if file.ends_with("cpu.shares") => {
                (now < LC_SHARES).then_some(LC_SHARES)
            }
            _ => (now > nice).then_some(nice),
        }
    }

    /// Returns a member process, by which an autogroup is reached; none if the group is empty and therefore gone.
    pub fn any_process(&self) -> Option<u32> {
        match self {
            Group::Cgroup(_) => Some(0),
            Group::Autogroup(id) => {
                let mut all = processes::all();
                all.find(|&pid| autogroup(pid).is_some_and(|(of, _)| of == *id))
            }
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Group::Autogroup(id) => write!(f, "autogroup {id}"),
            Group::Cgroup(file) => file.parent().unwrap_or(file).display().fmt(f),
        }
    }
}

fn autogroups_are_on() -> bool {
    fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
        .is_ok_and(|text| text.trim() == "1")
}

/// Returns the number and the nice value of a process's autogroup.
fn autogroup(pid: u32) -> Option<(u64, i64)> {
    parse(&fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?)
}

/// Parses `/autogroup-57 nice 0`.
fn parse(text: &str) -> Option<(u64, i64)> {
    let (id, nice) = text.trim().strip_prefix("/autogroup-")?.split_once(" nice ")?;
    Some((id.parse().ok()?, nice.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autogroup_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse("/autogroup-57 nice -15\n"), Some((57, -15)));
        assert_eq!(parse("/autogroup-57"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn groups_are_raised_and_never_lowered() {
        let (session, shares) = (Group::Autogroup(1), Group::Cgroup("/c/cpu.shares".into()));
        let weight = Group::Cgroup("/c/cpu.weight.nice".into());
        assert_eq!(session.raised(0), Some(-15));
        assert_eq!(session.raised(-15), None);
        assert_eq!(session.raised(-20), None);
        assert_eq!(weight.raised(5), Some(-15));
        assert_eq!(shares.raised(1024), Some(LC_SHARES));
        assert_eq!(shares.raised(262_144), None);
        assert_eq!((session.to_string(), shares.to_string()), ("autogroup 1".into(), "/c".into()));
    }
}
