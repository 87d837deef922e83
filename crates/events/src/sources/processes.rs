//! Ends of processes: a pidfd each, which is the event's descriptor and belongs to the queue.

use crate::EventError;
use crate::error::system;
use crate::ids::EventId;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, waitid};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The watched processes, by event.
pub(crate) type Processes = HashMap<EventId, Process>;

#[derive(Debug)]
pub(crate) struct Process {
    pidfd: OwnedFd,
    /// Its end was seen. The pidfd stays readable forever, and is reported again if it is registered anew.
    has_ended: bool,
}

impl Process {
    pub fn new(pidfd: OwnedFd) -> Process {
        Process { pidfd, has_ended: false }
    }
}

/// Returns how a process ended, in the form of wait(2), if it is a child of this one that has not been waited
/// for. It can still be waited for.
fn wait_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(pidfd), how).ok().flatten().as_ref().map(encode)
}

/// Converts from waitid's form to wait's: the code in the second byte, or the signal in the first seven bits
/// and whether there was a core dump in the eighth.
fn encode(status: &WaitIdStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xFF) << 8,
        (None, Some(signal)) => signal | if status.dumped() { 0x80 } else { 0 },
        (None, None) => 0,
    }
}

/// Returns the pidfd of a registration that has ended, to be closed.
pub(crate) fn forget(processes: &mut Processes, id: EventId) -> Option<OwnedFd> {
    processes.remove(&id).map(|process| process.pidfd)
}

/// Marks a process as ended and returns its status, or 0 if that is unknown; None if this was done before.
pub(crate) fn take_end(processes: &mut Processes, id: EventId) -> Option<i32> {
    let process = processes.get_mut(&id)?;
    if std::mem::replace(&mut process.has_ended, true) {
        return None;
    }
    Some(wait_status(process.pidfd.as_fd()).unwrap_or(0))
}

pub(crate) fn open(pid: u32) -> Result<OwnedFd, EventError> {
    let no_process = || EventError::NoProcess(pid);
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(no_process)?;
    pidfd_open(known, PidfdFlags::empty()).map_err(|errno| match errno {
        rustix::io::Errno::SRCH => no_process(),
        other => system("open a process")(other.into()),
    })
}
