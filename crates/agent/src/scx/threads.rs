//! Threads that are put into an enclave and given back.

use super::error::system;
use super::memory::Memory;
use super::{Scx, ScxError};
use crate::identity::{Change, Identity};
use crate::members;
use heddle_core::TaskId;
use heddle_sys::scheduling::{self, Class, Scheduling};
use std::io;

const EXT: Scheduling = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
/// How often it is looked who is to be given back: a thread that makes threads all the time is met again.
const ROUNDS: usize = 100;

/// What became of one that should be scheduled otherwise; threads end at any moment.
fn if_there(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Scx {
    /// Puts a thread into the enclave. Its children follow it. False if there is none of the number.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without the privilege.
    pub fn join(&self, tid: u32) -> Result<bool, ScxError> {
        Identity::of(tid).map_or(Ok(false), |who| self.join_as(tid, who))
    }

    fn join_as(&self, tid: u32, who: Identity) -> Result<bool, ScxError> {
        let what = || format!("put thread {tid} into enclave `{}`", self.name);
        let is_it = || Identity::of(tid) == Some(who);
        if scheduling::of(tid).is_ok_and(|now| now.class == Class::Ext) {
            // In another enclave, or of none: it has to come anew to be asked where it belongs.
            let out = Change::Policy(Scheduling::ORDINARY).make(tid, is_it);
            if_there(out).map_err(system(what()))?;
        }
        self.memory
            .joining
            .update(&tid.to_ne_bytes(), &self.id.to_ne_bytes())
            .map_err(system(what()))?;
        let done = if_there(Change::Policy(EXT).make(tid, is_it)).map(|there| there && is_it());
        if !matches!(done, Ok(true)) {
            // Another thread of the number would come in.
            let _ = self.memory.joining.remove(&tid.to_ne_bytes());
        }
        done.map_err(system(what()))
    }

    /// Puts all threads of a process into the enclave. The number of them.
    ///
    /// # Errors
    /// As [`Scx::join`]; the process does not exist.
    pub fn join_process(&self, pid: u32) -> Result<usize, ScxError> {
        let list = || members::of(pid).map_err(system(format!("/proc/{pid}/task")));
        // A child of one that is in already came in with it.
        let join = |tid, who| Ok(self.has(tid) || self.join_as(tid, who)?);
        members::join_all(pid, list, join)
    }

    /// Whether a thread of the number is in the enclave.
    #[must_use]
    pub fn has(&self, tid: u32) -> bool {
        self.slots().any(|slot| self.memory.thread_tid(slot) == tid)
    }

    /// Gives all threads back to the default scheduler. The number of them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_back(&self) -> Result<usize, ScxError> {
        give_back_of(&self.memory, self.id)
    }

    /// The slots of the enclave's threads.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        slots_of(&self.memory, self.id)
    }

    pub(super) fn slot(&self, thread: TaskId) -> Option<usize> {
        let slot = thread.index();
        let mine = self.memory.has_slot(slot) && self.memory.thread_enclave(slot) == self.id;
        mine.then_some(slot)
    }
}

fn slots_of(memory: &Memory, id: u32) -> impl Iterator<Item = usize> + '_ {
    (0..memory.slots()).filter(move |&slot| memory.thread_enclave(slot) == id)
}

/// Gives all threads of an enclave back to the default scheduler. The number of them.
pub(super) fn give_back_of(memory: &Memory, id: u32) -> Result<usize, ScxError> {
    let mut given = 0;
    for _ in 0..ROUNDS {
        let slots: Vec<usize> = slots_of(memory, id).collect();
        if slots.is_empty() {
            break;
        }
        for slot in slots {
            let tid = memory.thread_tid(slot);
            // Its slot is free before its number is, and another's threads are not of this class.
            let is_it = || memory.thread_enclave(slot) == id && memory.thread_tid(slot) == tid;
            let is_ours = scheduling::of(tid).is_ok_and(|now| now.class == Class::Ext) && is_it();
            if !is_ours {
                continue;
            }
            let what = || format!("give thread {tid} back");
            let was_there = if_there(scheduling::set(tid, Scheduling::ORDINARY));
            given += usize::from(was_there.map_err(system(what()))?);
        }
    }
    Ok(given)
}
