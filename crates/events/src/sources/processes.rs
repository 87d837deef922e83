//! Ends of processes: a pidfd each, which is the event's descriptor and the queue's own.

use crate::error::system;
use crate::queue::Inner;
use crate::slot::{EventId, flag};
use crate::{EventError, EventOptions, EventQueue};
use heddle_core::Rng;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, waitid};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

/// The processes that are waited for, by event.
pub(super) type Processes = HashMap<EventId, Process>;

#[derive(Debug)]
pub(super) struct Process {
    pidfd: OwnedFd,
    /// Its end was seen. The pidfd stays readable for ever, and whoever registers it anew hears of that again.
    has_ended: bool,
}

/// How a process ended, in the form of wait(2), if it is a child of this one that was not waited for. It can be waited for still.
fn wait_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(pidfd), how).ok().flatten().as_ref().map(encode)
}

/// From waitid's form into wait's: the code in the second byte, or the signal in the first seven bits and whether there was a core in the
/// eighth.
fn encode(status: &WaitIdStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xFF) << 8,
        (None, Some(signal)) => signal | if status.dumped() { 0x80 } else { 0 },
        (None, None) => 0,
    }
}

/// The pidfd of a registration that has ended: closed when it is dropped.
pub(super) fn forget(processes: &mut Processes, id: EventId) -> Option<OwnedFd> {
    processes.remove(&id).map(|process| process.pidfd)
}

impl Inner {
    /// A pidfd is readable: its process has ended.
    pub(super) fn process_ended(&self, id: EventId, near: u32, rng: &Rng) {
        let mut processes = self.sources.processes.lock().unwrap();
        let Some(process) = processes.get_mut(&id) else { return };
        if std::mem::replace(&mut process.has_ended, true) {
            return;
        }
        let status = wait_status(process.pidfd.as_fd()).unwrap_or(0);
        self.table.slot(id.index).data.store(status as u64, Relaxed);
        drop(processes);
        self.tell(vec![id], near, rng);
    }
}

impl EventQueue {
    /// Tells when the process `pid` has ended, once; the registration ends with that. If it is a child of this process that nobody has waited
    /// for by then, [`Event::data`](crate::Event::data) is its status in the form of wait(2): 256 times the exit code, or the signal that
    /// killed it, plus 128 with a core. Otherwise it is zero. The child can, and has to, be waited for all the same.
    ///
    /// Of a process that ended before and was not waited for it is told at once.
    ///
    /// # Errors
    /// [`EventError::NoProcess`]; [`EventError::Full`]; no descriptors left: each registration has one.
    pub fn register_process(
        &self,
        pid: u32,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        let pidfd = open(pid)?;
        let fd = pidfd.as_raw_fd();
        let _descriptor = self.0.descriptors.lock(fd);
        let id = self.begin_source(flag::PROCESS, fd, token, options.once())?;
        self.0.sources.processes.lock().unwrap().insert(id, Process { pidfd, has_ended: false });
        if let Err(error) = self.0.watch(id) {
            self.0.end_unwatched(id);
            return Err(error);
        }
        Ok(id)
    }
}

fn open(pid: u32) -> Result<OwnedFd, EventError> {
    let no_process = || EventError::NoProcess(pid);
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(no_process)?;
    pidfd_open(known, PidfdFlags::empty()).map_err(|errno| match errno {
        rustix::io::Errno::SRCH => no_process(),
        other => system("open a process")(other.into()),
    })
}
