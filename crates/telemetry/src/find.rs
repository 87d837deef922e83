//! Where pages are: among the descriptors of processes.

use heddle_sys::processes::{self, Process};
use rustix::fs::{Mode, OFlags, fstat, open};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::reader::Reader;

/// Returns the pages of the process `pid`: one for each runtime, event queue and agent that it has, or none.
///
/// # Errors
/// The process does not exist, or is another user's; or its only page cannot be read, and why.
pub fn find(pid: u32) -> io::Result<Vec<Reader>> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("there is no process {pid}"));
    let process = Process::of(pid).ok_or_else(gone)?;
    let folder = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let (mut found, mut known, mut failed) = (Vec::new(), Vec::new(), None);
    for entry in folder.flatten().map(|entry| entry.path()).filter(|path| is_page(path)) {
        let file = match open_file(&entry) {
            Ok((identity, file)) if !known.contains(&identity) => {
                known.push(identity);
                file
            }
            // Closed meanwhile, or a copy of the same descriptor.
            Ok(_) | Err(_) => continue,
        };
        match Reader::open(file, Some(process)) {
            // The child of a fork still has its parent's descriptors.
            Ok(reader) if own_ids(pid).contains(&reader.own_pid()) => found.push(reader),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Returns the pages of all processes that the caller may look into.
#[must_use]
pub fn scan() -> Vec<Reader> {
    processes::all().filter_map(|pid| find(pid).ok()).flatten().collect()
}

/// Returns whether the link leads to a file in memory of a page's name.
fn is_page(path: &Path) -> bool {
    let target = fs::read_link(path).unwrap_or_default();
    target.to_str().is_some_and(|target| target.starts_with("/memfd:heddle:"))
}

fn open_file(path: &Path) -> io::Result<((u64, u64), OwnedFd)> {
    // Whatever it is, opening it does not wait.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    Ok(((stat.st_dev, stat.st_ino), file))
}

/// Returns the ids of a process in its own namespace and those around it.
fn own_ids(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let ids = line.split_whitespace().filter_map(|id| id.parse().ok());
    std::iter::once(pid).chain(ids).collect()
}
