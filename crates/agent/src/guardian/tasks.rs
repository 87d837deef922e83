//! Processes and threads, from /proc.

use heddle_sys::processes::{self, Process};
use heddle_sys::stat::Stat;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns the threads of a process; none if it has ended.
#[must_use]
pub(super) fn threads(pid: u32) -> Vec<u32> {
    numbers(Path::new(&format!("/proc/{pid}/task")))
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the command line of a process.
#[must_use]
pub(super) fn command(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.trim_end_matches('\0').replace('\0', " ")
}

/// Returns when a process that has not ended began, in the kernel's ticks. With its number this identifies a
/// process forever.
#[must_use]
pub(super) fn start_time(pid: u32) -> Option<u64> {
    Process::of(pid).map(|process| process.began)
}

/// Whether the process `pid` that began at `when` is alive.
#[must_use]
pub(super) fn is_alive(pid: u32, when: Option<u64>) -> bool {
    start_time(pid).is_some_and(|began| when.is_none_or(|when| when == began))
}

/// Whether a process is exiting, or has ended and was not waited for.
#[must_use]
pub(super) fn is_exiting(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.is_exiting())
}

/// Whether the process is an agent by its command line, and `uid`'s.
#[must_use]
pub(super) fn is_agent(pid: u32, uid: u32) -> bool {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = text.split(|byte| *byte == 0);
    let owner = fs::metadata(format!("/proc/{pid}")).map(|folder| folder.uid());
    words.any(|word| word == super::AGENT_PROCESS.as_bytes())
        && owner.is_ok_and(|owner| owner == uid)
}

/// Returns the living children of this process, including orphaned descendants that the kernel gave it. Each is
/// checked when it is asked for, as there may be thousands.
pub(super) fn children() -> impl Iterator<Item = u32> {
    let me = std::process::id();
    // The list is missing without CONFIG_PROC_CHILDREN, or if a thread ended meanwhile.
    let listed = listed_children(me).unwrap_or_else(|_| numbers(Path::new("/proc")));
    listed.into_iter().filter(move |&pid| processes::parent(pid) == Some(me))
}

fn listed_children(me: u32) -> std::io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for tid in threads(me) {
        let list = fs::read_to_string(format!("/proc/{me}/task/{tid}/children"))?;
        all.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_seen_until_they_end() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        assert!(children().any(|child| child == pid));
        // A process has no command line while it becomes another program.
        while command(pid).is_empty() {}
        assert_eq!((threads(pid), command(pid).as_str()), (vec![pid], "sleep 1000"));
        let when = start_time(pid);
        assert!(when.is_some() && is_alive(pid, when) && !is_alive(pid, when.map(|t| t + 1)));
        assert!(!is_exiting(pid));
        child.kill().unwrap();
        // A process stays until it is collected.
        while !is_exiting(pid) {}
        child.wait().unwrap();
        assert!(!is_exiting(pid));
        assert!(children().all(|child| child != pid) && !is_alive(pid, when));
        assert!(threads(pid).is_empty());
    }
}
