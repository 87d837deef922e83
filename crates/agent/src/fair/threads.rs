//! The kernel's present settings of threads.

use super::journal::{Contents, Entry, Journal, Original, ThreadEntry};
use super::levels::default_slice;
use heddle_core::Ns;
use heddle_sys::processes::Process;
use heddle_sys::scheduling::{self, Attributes, Class};
use rustix::io::Errno;
use std::io;

/// Returns a thread's present settings. The kernel's own slice is reported as zero: set to that, the thread follows
/// the kernel's again.
pub(super) fn now(thread: Process) -> io::Result<Original> {
    let mut attributes = scheduling::attributes(thread.pid)?;
    if attributes.slice == default_slice() {
        attributes.slice = Ns::ZERO;
    }
    Ok(Original { attributes, mask: scheduling::mask(thread.pid)? })
}

/// Whether the enclave may change a thread (F3).
pub(super) fn is_fair(attributes: Attributes) -> bool {
    matches!(attributes.scheduling.class, Class::Other | Class::Batch | Class::Idle)
}

/// Records threads and confines them. Returns how many still exist.
pub(super) fn record_and_confine(
    journal: &Journal,
    contents: &Contents,
    process: Process,
    new: &[Process],
) -> io::Result<usize> {
    let mut found = Vec::new();
    for &thread in new {
        // A thread that has ended meanwhile is skipped.
        found.extend(unless_gone(now(thread))?.map(|was| (thread, was)));
    }
    let entry = |(thread, was): &(Process, Original)| {
        Entry::Thread(ThreadEntry::new(process, *thread, was))
    };
    journal.append(&found.iter().map(entry).collect::<Vec<_>>())?;
    for (thread, was) in &found {
        let confined = contents.confined(&was.mask);
        if confined != was.mask {
            unless_gone(scheduling::set_mask(thread.pid, &confined))?;
        }
    }
    Ok(found.len())
}

/// Returns none if the thread is gone.
pub(super) fn unless_gone<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        done => done.map(Some),
    }
}
