//! The process with whose end an attachment ends. It is written down as number and time of start, not kept as a
//! descriptor, so that whoever looks later, after a restart too, can tell whether it is still the same.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};

use procfs::process::Process;

use super::{Given, invalid};
use crate::request::{Error, ProcessId, Role};

/// Takes the owner out of what was given.
pub fn take(given: &mut Given) -> Result<Option<ProcessId>, Error> {
    let Some(at) = given.iter().position(|(role, _)| *role == Role::Owner) else { return Ok(None) };
    let (_, pidfd) = given.swap_remove(at);
    let gone = || invalid("the owner is no process that runs");
    let owner = process_id(&pidfd).ok_or_else(gone)?;
    if !alive(owner) {
        return Err(gone());
    }
    Ok(Some(owner))
}

fn process_id(pidfd: &OwnedFd) -> Option<ProcessId> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    started(pid).map(|started| ProcessId { pid, started })
}

/// When the process of a number was started; none if there is none, or it has ended and only waits to be asked how.
fn started(pid: u32) -> Option<u64> {
    let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat()).ok()?;
    (!matches!(stat.state, 'Z' | 'X')).then_some(stat.starttime)
}

/// Whether it still runs.
pub fn alive(owner: ProcessId) -> bool {
    started(owner.pid) == Some(owner.started)
}
