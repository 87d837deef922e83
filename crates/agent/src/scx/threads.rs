//! Threads that are put into an enclave and given back.

use super::error::system;
use super::memory::Memory;
use super::{Scx, ScxError};
use crate::identity::{Change, Identity};
use crate::members;
use heddle_core::TaskId;
use heddle_sys::processes;
use heddle_sys::scheduling::{self, Class, Scheduling};
use std::io;
use std::thread;
use std::time::Duration;

const EXT: Scheduling = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
/// How often it is looked who is to be given back: a thread that makes threads all the time is met again.
const ROUNDS: usize = 100;
/// How long one that nobody can give back has to end, between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a thread is put in that changes meanwhile how it is scheduled.
const TRIES: usize = 10;

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
        let failed = || system(format!("put thread {tid} into enclave `{}`", self.name));
        for _ in 0..TRIES {
            let no_slot = self.memory.without_slot();
            if !self.try_join(tid, who).map_err(failed())? {
                return Ok(false);
            }
            if self.has(tid) || self.memory.without_slot() > no_slot {
                return Ok(true);
            }
        }
        let why = "it changes by itself how it is scheduled, or the kernel has ended the scheduler";
        Err(failed()(io::Error::other(why)))
    }

    /// Has a thread come into the enclave, unless it changes by itself how it is scheduled. False if there is none of the number.
    fn try_join(&self, tid: u32, who: Identity) -> io::Result<bool> {
        let is_it = || Identity::of(tid) == Some(who);
        // Before it leaves where it is: it comes in whoever has it come back, be it the thread itself.
        self.memory.joining.update(&tid.to_ne_bytes(), &self.id.to_ne_bytes())?;
        let made = come_anew(tid, is_it);
        // Nobody has taken it if the thread did not come: then another of the number would, at any time.
        let _ = self.memory.joining.remove(&tid.to_ne_bytes());
        if_there(made).map(|there| there && is_it())
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
        let given = if self.is_loaded() { give_back_of(&self.memory, self.id)? } else { 0 };
        // Whoever the kernel had given back meanwhile had no slot any more.
        if self.is_loaded() { Ok(given) } else { Ok(given + self.give_back_left()?) }
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

/// Has a thread be asked where it belongs, also if it is in another enclave already, or of none.
fn come_anew(tid: u32, is_it: impl Fn() -> bool) -> io::Result<()> {
    if is_ours(tid) {
        Change::Policy(Scheduling::ORDINARY).make(tid, &is_it)?;
    }
    Change::Policy(EXT).make(tid, &is_it)
}

/// Whether there is a thread of the number, and the kernel's programs schedule it.
pub(super) fn is_ours(tid: u32) -> bool {
    scheduling::of(tid).is_ok_and(|now| now.class == Class::Ext)
}

/// The threads of the machine whose class is sched_ext's, each after its process.
pub(super) fn ext_threads() -> impl Iterator<Item = (u32, u32)> {
    let threads = |pid| members::of(pid).unwrap_or_default().into_iter().map(move |tid| (pid, tid));
    processes::all().flat_map(threads).filter(|&(_, tid)| is_ours(tid))
}

/// Makes a thread ordinary that has the class of sched_ext. False if there is none of the number, or it would not be.
pub(super) fn make_ordinary(tid: u32) -> bool {
    let Some(who) = Identity::of(tid).filter(|_| is_ours(tid)) else { return false };
    let made = Change::Policy(Scheduling::ORDINARY).make(tid, || Identity::of(tid) == Some(who));
    made.is_ok() && !is_ours(tid)
}

/// Gives all threads of an enclave back to the default scheduler. The number of them.
///
/// # Errors
/// The kernel's; threads are left: then the enclave's number must not become another's, which they would be in.
pub(super) fn give_back_of(memory: &Memory, id: u32) -> Result<usize, ScxError> {
    let slots = || slots_of(memory, id).collect();
    give_back_all(slots, |slot| give_back_one(memory, id, slot), || thread::sleep(PAUSE))
}

/// Has `give` give back who is in `slots` until nobody is, with a `pause` where none could be.
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

/// Gives back who is in a slot. False if it is there still, or has just left.
pub(super) fn give_back_one(memory: &Memory, id: u32, slot: usize) -> Result<bool, ScxError> {
    let before = memory.thread_tid(slot);
    let Some(tid) = number_in(memory, id, slot) else { return Ok(false) };
    // None of one that ends, which leaves its slot by this all the same.
    let who = Identity::of(tid);
    let is_strange = who.is_some_and(|who| who.tgid != memory.thread_tgid(slot));
    if is_strange || !is_ours(tid) || memory.thread_enclave(slot) != id {
        return Ok(false);
    }
    let made = Change::Policy(Scheduling::ORDINARY).make(tid, || Identity::of(tid) == who);
    let has_left = || memory.thread_enclave(slot) != id || memory.thread_tid(slot) != before;
    if_there(made)
        .map(|there| there && has_left())
        .map_err(system(format!("give thread {tid} back")))
}

/// The number of the thread in a slot. One that executes a program has its process's number already while its slot still says the one that
/// it had, which nobody has any more, nor is anybody else's slot of that process's first thread.
fn number_in(memory: &Memory, id: u32, slot: usize) -> Option<u32> {
    let (tid, process) = (memory.thread_tid(slot), memory.thread_tgid(slot));
    let executes = || (0..memory.slots()).all(|slot| memory.thread_tid(slot) != process);
    let number = match keeps_number(memory, slot) {
        true => tid,
        false if executes() => process,
        false => return None,
    };
    // Before it the slot may have become another's.
    let is_it = memory.thread_enclave(slot) == id && memory.thread_tid(slot) == tid;
    is_it.then_some(number)
}

/// Whether the thread in a slot has the number that the slot says.
pub(super) fn keeps_number(memory: &Memory, slot: usize) -> bool {
    let (tid, process) = (memory.thread_tid(slot), memory.thread_tgid(slot));
    scheduling::of(tid).is_ok() && Identity::of(tid).is_none_or(|who| who.tgid == process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn those_who_cannot_be_given_back_are_told() {
        let pauses = Cell::new(0);
        let left = give_back_all(|| vec![3, 5], |_| Ok(false), || pauses.set(pauses.get() + 1));
        assert!(matches!(left, Err(ScxError::Left(2))), "{left:?}");
        assert_eq!(pauses.get(), ROUNDS);
    }

    #[test]
    fn those_who_come_meanwhile_are_given_back() {
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
