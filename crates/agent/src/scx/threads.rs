//! Threads that join an enclave and are given back.

use super::error::system;
use super::memory::Memory;
use super::{Scx, ScxError};
use crate::identity::{Change, Identity};
use crate::process_threads;
use heddle_core::TaskId;
use heddle_sys::processes;
use heddle_sys::scheduling::{self, Class, Scheduling};
use std::io;
use std::thread;
use std::time::Duration;

const EXT: Scheduling = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
/// How often to search for threads to give back: those that a thread makes meanwhile are found in the next round.
const ROUNDS: usize = 100;
/// How long to wait between two rounds for a thread that cannot be given back to end.
const PAUSE: Duration = Duration::from_millis(10);
/// How often to retry a thread that changes its own scheduling meanwhile.
const TRIES: usize = 10;

/// Whether the thread was still there; threads may end at any moment.
fn if_exists(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Scx {
    /// Puts a thread into the enclave, and with it its future children. Returns false if there is no such thread.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without the privilege.
    pub fn join(&self, tid: u32) -> Result<bool, ScxError> {
        Identity::of(tid).map_or(Ok(false), |who| self.join_as(tid, who))
    }

    fn join_as(&self, tid: u32, who: Identity) -> Result<bool, ScxError> {
        let failed = || system(format!("put thread {tid} into enclave `{}`", self.name));
        for _ in 0..TRIES {
            let no_slot = self.memory.without_slot();
            if !self.try_join(tid, who).map_err(failed())? {
                return Ok(false);
            }
            if self.has(tid) {
                return Ok(true);
            }
            if self.memory.without_slot() > no_slot {
                return Err(ScxError::NoSlot(tid));
            }
        }
        let why = "it changes its own scheduling, or the kernel has ended the scheduler";
        Err(failed()(io::Error::other(why)))
    }

    /// Makes a thread join the enclave, unless it changes its own scheduling. Returns false if there is no such
    /// thread.
    fn try_join(&self, tid: u32, who: Identity) -> io::Result<bool> {
        let is_it = || Identity::of(tid) == Some(who);
        // Before it leaves its present class: it joins even if something else, for example the thread itself, makes
        // it come back.
        self.memory.joining.update(&tid.to_ne_bytes(), &self.id.to_ne_bytes())?;
        let made = rejoin(tid, is_it);
        // Still there if the thread did not come; then another thread with the number would join at any time.
        let _ = self.memory.joining.remove(&tid.to_ne_bytes());
        if_exists(made).map(|there| there && is_it())
    }

    /// Puts all threads of a process into the enclave. Returns their number.
    ///
    /// # Errors
    /// As [`Scx::join`], and if the process does not exist.
    pub fn join_process(&self, pid: u32) -> Result<usize, ScxError> {
        let list = || process_threads::of(pid).map_err(system(format!("/proc/{pid}/task")));
        // A child of a member has joined with it.
        let join = |tid, who| Ok(self.has(tid) || self.join_as(tid, who)?);
        process_threads::join_all(pid, list, join)
    }

    /// Whether the thread is in the enclave.
    #[must_use]
    pub fn has(&self, tid: u32) -> bool {
        self.slots().any(|slot| self.memory.thread_tid(slot) == tid)
    }

    /// Gives all threads back to the default scheduler. Returns their number.
    ///
    /// # Errors
    /// The kernel's errors.
    pub fn give_back(&self) -> Result<usize, ScxError> {
        let given = if self.is_loaded() { give_back_of(&self.memory, self.id)? } else { 0 };
        // Threads that the kernel gave back meanwhile have no slot any more.
        if self.is_loaded() { Ok(given) } else { Ok(given + self.give_back_remaining()?) }
    }

    /// Returns the slots of the enclave's threads.
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

/// Makes a thread leave and join again, even if it is in another enclave or in none.
fn rejoin(tid: u32, is_it: impl Fn() -> bool) -> io::Result<()> {
    if is_managed(tid) {
        Change::Policy(Scheduling::ORDINARY).make(tid, &is_it)?;
    }
    Change::Policy(EXT).make(tid, &is_it)
}

/// Whether the kernel's programs schedule the thread.
pub(super) fn is_managed(tid: u32) -> bool {
    scheduling::of(tid).is_ok_and(|now| now.class == Class::Ext)
}

/// Returns the threads of the machine with sched_ext's class, each with its process.
pub(super) fn ext_threads() -> impl Iterator<Item = (u32, u32)> {
    let threads =
        |pid| process_threads::of(pid).unwrap_or_default().into_iter().map(move |tid| (pid, tid));
    processes::all().flat_map(threads).filter(|&(_, tid)| is_managed(tid))
}

/// Makes a thread of sched_ext's class ordinary. Returns false if there is none, or the change fails.
pub(super) fn make_ordinary(tid: u32) -> bool {
    let Some(who) = Identity::of(tid).filter(|_| is_managed(tid)) else { return false };
    let made = Change::Policy(Scheduling::ORDINARY).make(tid, || Identity::of(tid) == Some(who));
    made.is_ok() && !is_managed(tid)
}

/// Gives all threads of an enclave back to the default scheduler. Returns their number.
///
/// # Errors
/// The kernel's errors, or threads that remain: then the enclave's number must not be reused, or they would be in
/// the new one.
pub(super) fn give_back_of(memory: &Memory, id: u32) -> Result<usize, ScxError> {
    let slots = || slots_of(memory, id).collect();
    give_back_all(slots, |slot| give_back_one(memory, id, slot), || thread::sleep(PAUSE))
}

/// Gives back the threads in `slots` with `give` until there are none, with a `pause` after a round without
/// success.
fn give_back_all(
    slots: impl Fn() -> Vec<usize>,
    mut give: impl FnMut(usize) -> Result<bool, ScxError>,
    mut pause: impl FnMut(),
) -> Result<usize, ScxError> {
    let mut all = 0;
    for _ in 0..ROUNDS {
        let left = slots();
        if left.is_empty() {
            return Ok(all);
        }
        let mut given = 0;
        for slot in left {
            given += usize::from(give(slot)?);
        }
        if given == 0 {
            pause();
        }
        all += given;
    }
    match slots().len() {
        0 => Ok(all),
        left => Err(ScxError::Left(left)),
    }
}

/// Gives back the thread in a slot. Returns false if it is still there, or has just left.
pub(super) fn give_back_one(memory: &Memory, id: u32, slot: usize) -> Result<bool, ScxError> {
    let before = memory.thread_tid(slot);
    let Some(tid) = number_in(memory, id, slot) else { return Ok(false) };
    // None if the thread is ending; it leaves its slot by this all the same.
    let who = Identity::of(tid);
    let is_foreign = who.is_some_and(|who| who.tgid != memory.thread_tgid(slot));
    if is_foreign || !is_managed(tid) || memory.thread_enclave(slot) != id {
        return Ok(false);
    }
    let made = Change::Policy(Scheduling::ORDINARY).make(tid, || Identity::of(tid) == who);
    let has_left = || memory.thread_enclave(slot) != id || memory.thread_tid(slot) != before;
    if_exists(made)
        .map(|there| there && has_left())
        .map_err(system(format!("give thread {tid} back")))
}

/// Returns the number of the thread in a slot. A thread that executes a program already has its process's number
/// while its slot still has the old one, which no thread has any more; and no other slot is that of the process's
/// first thread.
fn number_in(memory: &Memory, id: u32, slot: usize) -> Option<u32> {
    let (tid, process) = (memory.thread_tid(slot), memory.thread_tgid(slot));
    let executes = || (0..memory.slots()).all(|slot| memory.thread_tid(slot) != process);
    let number = match keeps_number(memory, slot) {
        true => tid,
        false if executes() => process,
        false => return None,
    };
    // The slot may have been reused before this.
    let is_it = memory.thread_enclave(slot) == id && memory.thread_tid(slot) == tid;
    is_it.then_some(number)
}

/// Whether the thread in a slot still has the slot's number.
pub(super) fn keeps_number(memory: &Memory, slot: usize) -> bool {
    let (tid, process) = (memory.thread_tid(slot), memory.thread_tgid(slot));
    scheduling::of(tid).is_ok() && Identity::of(tid).is_none_or(|who| who.tgid == process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn threads_that_cannot_be_given_back_are_reported() {
        let pauses = Cell::new(0);
        let left = give_back_all(|| vec![3, 5], |_| Ok(false), || pauses.set(pauses.get() + 1));
        assert!(matches!(left, Err(ScxError::Left(2))), "{left:?}");
        assert_eq!(pauses.get(), ROUNDS);
    }

    #[test]
    fn threads_that_join_meanwhile_are_given_back() {
        let slots = RefCell::new(vec![1]);
        let give = |slot| {
            let mut slots = slots.borrow_mut();
            slots.retain(|other| *other != slot);
            slots.extend((slot < 50).then_some(slot + 1));
            Ok(true)
        };
        let given = give_back_all(|| slots.borrow().clone(), give, || panic!("no need"));
        assert_eq!(given.unwrap(), 50);
    }
}
