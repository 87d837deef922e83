//! The threads of a process that joins, including those that it makes meanwhile.

use crate::identity::Identity;
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// How often to search for new threads. A member's children join with it, so nothing escapes of a process that
/// makes threads all the time.
const ROUNDS: usize = 100;

/// Returns the numbers of the threads of a process.
pub(crate) fn of(pid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Makes every thread of process `pid` that `list` names join, until it names no new ones, at most a hundred times.
/// A number may belong to another process's thread by now; it is skipped. `join` returns whether the thread
/// existed. Returns how many did.
pub(crate) fn join_all<E>(
    pid: u32,
    mut list: impl FnMut() -> Result<Vec<u32>, E>,
    mut join: impl FnMut(u32, Identity) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut seen, mut count) = (BTreeSet::new(), 0);
    for _ in 0..ROUNDS {
        let new: Vec<u32> = list()?.into_iter().filter(|&tid| seen.insert(tid)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            if let Some(who) = Identity::of(tid).filter(|who| who.tgid == pid) {
                count += usize::from(join(tid, who)?);
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_makes_threads_all_the_time_is_not_waited_for() {
        let (pid, mut rounds) = (std::process::id(), 0);
        let list = || {
            rounds += 1;
            assert!(rounds <= ROUNDS, "it has an end");
            Ok::<_, io::Error>(vec![u32::MAX - rounds as u32])
        };
        assert_eq!(join_all(pid, list, |_, _| Ok(true)).unwrap(), 0);
        assert_eq!(rounds, ROUNDS);
    }

    #[test]
    fn each_thread_joins_once_and_none_of_another_process() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let (pid, me) = (std::process::id(), heddle_sys::thread::id());
        // As if the number of a thread was reused between listing and joining.
        let list = || Ok::<_, io::Error>(vec![me, child.id(), me]);
        let mut joined = Vec::new();
        let count = join_all(pid, list, |tid, who| {
            joined.push((tid, who.tgid));
            Ok(true)
        });
        let count = count.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((count, joined), (1, vec![(me, pid)]));
        assert!(of(pid).unwrap().contains(&me));
    }
}
