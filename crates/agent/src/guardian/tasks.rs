//! Processes and threads, from /proc.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The threads of a process; none where it has ended.
#[must_use]
pub(super) fn threads(pid: u32) -> Vec<u32> {
    numbers(Path::new(&format!("/proc/{pid}/task")))
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What a process was started as.
#[must_use]
pub(super) fn command(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.trim_end_matches('\0').replace('\0', " ")
}

/// When a process began, in the kernel's ticks: with its number it names a process for ever.
#[must_use]
pub(super) fn began(pid: u32) -> Option<u64> {
    let (_, fields) = stat(pid)?;
    fields.get(19)?.parse().ok()
}

/// Whether the process `pid` that `began` then still runs.
#[must_use]
pub(super) fn lives(pid: u32, when: Option<u64>) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
        && (when.is_none() || began(pid) == when)
}

/// Whether the process is an agent by its command, and that user's.
#[must_use]
pub(super) fn is_agent(pid: u32, uid: u32) -> bool {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = text.split(|byte| *byte == 0);
    let owner = fs::metadata(format!("/proc/{pid}")).map(|folder| folder.uid());
    words.any(|word| word == super::AGENT_PROCESS.as_bytes())
        && owner.is_ok_and(|owner| owner == uid)
}

/// The children of this process that have not ended, those that the kernel gave it (orphaned descendants) included.
#[must_use]
pub(super) fn children() -> Vec<u32> {
    let me = std::process::id();
    let from_kernel = threads(me)
        .into_iter()
        .map(|tid| fs::read_to_string(format!("/proc/{me}/task/{tid}/children")));
    match from_kernel.collect::<Result<Vec<String>, _>>() {
        Ok(lists) => {
            let all = lists.iter().flat_map(|list| list.split_whitespace());
            all.filter_map(|pid| pid.parse().ok()).filter(|&pid| lives(pid, None)).collect()
        }
        // A kernel without CONFIG_PROC_CHILDREN, or a thread that ended meanwhile.
        Err(_) => {
            numbers(Path::new("/proc")).into_iter().filter(|&pid| is_child(pid, me)).collect()
        }
    }
}

fn is_child(pid: u32, parent: u32) -> bool {
    stat(pid).is_some_and(|(state, fields)| {
        !matches!(state, 'Z' | 'X')
            && fields.get(1).is_some_and(|field| field.parse() == Ok(parent))
    })
}

/// The state and the fields from it on: what is before may hold anything, up to the last parenthesis.
fn stat(pid: u32) -> Option<(char, Vec<String>)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
    Some((fields.first()?.chars().next()?, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_seen_until_they_end() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        assert!(children().contains(&pid));
        // While a process becomes another program it has no command line.
        while command(pid).is_empty() {}
        assert_eq!((threads(pid), command(pid).as_str()), (vec![pid], "sleep 1000"));
        let when = began(pid);
        assert!(when.is_some() && lives(pid, when) && !lives(pid, when.map(|t| t + 1)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&pid) && !lives(pid, when));
        assert!(threads(pid).is_empty());
    }
}
