//! Threads as the kernel has them now.

use super::journal::{Contents, Entry, Journal, ThreadEntry, Was};
use super::levels::default_slice;
use heddle_core::Ns;
use heddle_sys::processes::Process;
use heddle_sys::scheduling::{self, Attributes, Class};
use rustix::io::Errno;
use std::io;

/// What `thread` is now. The kernel's own slice is told as zero: set so, it follows the kernel's again.
pub(super) fn now(thread: Process) -> io::Result<Was> {
    let mut attributes = scheduling::attributes(thread.pid)?;
    if attributes.slice == default_slice() {
        attributes.slice = Ns::ZERO;
    }
    Ok(Was { attributes, mask: scheduling::mask(thread.pid)? })
}

/// Whether the enclave may change a thread (F3).
pub(super) fn is_fair(attributes: Attributes) -> bool {
    matches!(attributes.scheduling.class, Class::Other | Class::Batch | Class::Idle)
}

/// Writes threads down and confines them. The number of those that are there.
pub(super) fn bring_in(
    journal: &Journal,
    contents: &Contents,
    process: Process,
    new: &[Process],
) -> io::Result<usize> {
    let mut found = Vec::new();
    for &thread in new {
        // One that has ended meanwhile is no loss.
        found.extend(unless_gone(now(thread))?.map(|was| (thread, was)));
    }
    let entry =
        |(thread, was): &(Process, Was)| Entry::Thread(ThreadEntry::new(process, *thread, was));
    journal.append(&found.iter().map(entry).collect::<Vec<_>>())?;
    for (thread, was) in &found {
        let confined = contents.confined(&was.mask);
        if confined != was.mask {
            unless_gone(scheduling::set_mask(thread.pid, &confined))?;
        }
    }
    Ok(found.len())
}

/// None where the thread is gone.
pub(super) fn unless_gone<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        done => done.map(Some),
    }
}
