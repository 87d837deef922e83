//! Restoring the original settings.

use super::journal::{Contents, GroupEntry, Journal, Member};
use super::levels::same;
use super::members::{self, InEnclave};
use super::threads::{now, unless_gone};
use heddle_sys::processes::{self, Process};
use heddle_sys::scheduling;
use std::io;

/// How often to search for threads that were made meanwhile by one that was not restored yet.
const ROUNDS: usize = 100;

/// Restores threads and groups, unless other programs have changed them since (F2). Children that the agent has not
/// found yet are restored to their parents' settings. Returns the number of threads that were changed.
///
/// # Errors
/// The first failure; everything else is done.
pub(super) fn undo(journal: &Journal) -> io::Result<usize> {
    let contents = journal.read()?;
    // Only the guardian of a program that it has started adopts orphans.
    let adopts = matches!(rustix::process::child_subreaper(), Ok(Some(_)));
    let guardian = adopts.then(std::process::id);
    let (mut changed, mut failed) = (0, Ok(()));
    for _ in 0..ROUNDS {
        let before = changed;
        for InEnclave { process, member, .. } in members::processes(&contents, guardian) {
            for thread in processes::threads(process.pid) {
                match give_back(&contents, member, process, thread) {
                    Ok(true) => changed += 1,
                    Ok(false) => {}
                    Err(error) => failed = failed.and(Err(error)),
                }
            }
        }
        if changed == before {
            break;
        }
    }
    for entry in &contents.groups {
        failed = failed.and(restore(entry));
    }
    failed.map(|()| changed)
}

/// Whether anything was changed.
fn give_back(
    contents: &Contents,
    member: &Member,
    process: Process,
    thread: Process,
) -> io::Result<bool> {
    let Some(was) = member.original(process, thread) else { return Ok(false) };
    let Some(now) = unless_gone(now(thread))? else { return Ok(false) };
    let mut changed = false;
    if !same(now.attributes, was.attributes)
        && contents.may_have_set(now.attributes, was.attributes)
    {
        changed |= unless_gone(scheduling::set_attributes(thread.pid, was.attributes))?.is_some();
    }
    if now.mask != was.mask && now.mask == contents.confined(&was.mask) {
        changed |= unless_gone(scheduling::set_mask(thread.pid, &was.mask))?.is_some();
    }
    Ok(changed)
}

/// Restores a group, unless another program has changed it since.
pub(super) fn restore(entry: &GroupEntry) -> io::Result<()> {
    still_set(entry).map_or(Ok(()), |member| entry.group.set(member, entry.was))
}

/// Returns a process of the group if the group still has the weight that was set. None if it is empty and therefore
/// gone.
pub(super) fn still_set(entry: &GroupEntry) -> Option<u32> {
    let GroupEntry { group, set, .. } = entry;
    group.any_process().filter(|&member| group.weight(member) == Some(*set))
}
