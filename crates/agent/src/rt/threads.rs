//! Threads that join, are announced, and are given back.

use super::commit::has;
use super::error::RtError;
use super::memory::ThreadWords;
use super::state_word::{BLOCKED, GONE, RUNNABLE};
use super::tracer::StateChange;
use super::{Rt, enforce};
use crate::identity::Identity;
use crate::model::{Kind, Message};
use crate::process_threads;
use heddle_sys::scheduling::{self, Class, Mask, Scheduling};
use heddle_sys::stat::Stat;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// How often to compare the word of a joining thread with the kernel's state until both agree.
const CHECKS: usize = 100;

/// How often, and at what interval, to search for copies of threads that were restored while they were being
/// copied.
const PAUSES: usize = 25;
const PAUSE: Duration = Duration::from_millis(20);

/// Threads that are restored but still managed, and threads for which the kernel refused.
#[derive(Default)]
struct Restored {
    threads: BTreeSet<(usize, u32)>,
    kept: BTreeSet<(usize, u32)>,
    refused: Option<RtError>,
}

impl Restored {
    fn keep(&mut self, slot: usize, tid: u32, why: RtError) {
        self.kept.insert((slot, tid));
        self.refused.get_or_insert(why);
    }
}

/// A thread's original settings.
struct OriginalSettings {
    scheduling: Scheduling,
    nice: i32,
    mask: Mask,
}

impl Rt {
    /// Puts a thread of any process into the enclave, and with it its future children. A thread that is already in
    /// it stays as it is.
    ///
    /// # Errors
    /// [`RtError::NoThread`]; [`RtError::Unfit`] if it may run on none of the enclave's CPUs, has a deadline, is in
    /// another enclave, or there is no room.
    pub fn join(&self, tid: u32) -> Result<(), RtError> {
        self.join_as(tid, Identity::of(tid).ok_or(RtError::NoThread(tid))?)
    }

    fn join_as(&self, tid: u32, who: Identity) -> Result<(), RtError> {
        let _enforcing = self.enforcing();
        if let Some(slot) = self.slot_of(tid) {
            if self.memory.thread(slot).tgid() == who.tgid {
                return Ok(());
            }
            self.follow(slot, tid);
        }
        let before = self.original_settings(tid)?;
        let failed = |what: &'static str| RtError::system(format!("{what} thread {tid}"));
        let old = (before.scheduling.number(), before.scheduling.priority);
        let slot =
            self.tracer.admit(tid, who.tgid, old, before.nice).map_err(failed("admitting"))?;
        let slot = slot.ok_or_else(|| unfit(tid, "cannot be managed: too many threads are"))?;
        let thread = self.memory.thread(slot);
        thread.set_wanted(&before.mask);
        thread.set_placed(&before.mask);
        thread.began().store(who.began, Relaxed);
        // From here on the kernel side reports on the thread, and its children join.
        let number = (slot as u32).to_ne_bytes();
        self.memory.tids.update(&tid.to_ne_bytes(), &number).map_err(failed("tracking"))?;
        // A thread that ended before it was tracked would stay forever, and so would the next one with its number.
        if Identity::of(tid) != Some(who) {
            self.tracer.leave(slot, tid);
            return Err(RtError::NoThread(tid));
        }
        let parked = enforce::park_new(&thread, tid, &self.own_part(&before.mask));
        if parked.is_err() {
            self.give_one(slot, tid)?;
        }
        parked.map_err(failed("parking"))?;
        self.announce(slot, tid);
        Ok(())
    }

    /// Puts all threads of a process into the enclave, including those that it makes meanwhile. Returns their
    /// number.
    ///
    /// # Errors
    /// As [`Rt::join`], but threads that end meanwhile are no error.
    pub fn join_process(&self, pid: u32) -> Result<usize, RtError> {
        let list = || process_threads::of(pid).map_err(|_| RtError::NoThread(pid));
        process_threads::join_all(pid, list, |tid, who| match self.join_as(tid, who) {
            Ok(()) => Ok(true),
            Err(RtError::NoThread(_)) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Gives a thread back: it is what it was before, and its agent gets a message that it left.
    ///
    /// # Errors
    /// [`RtError::NoThread`] if it is not in the enclave.
    pub fn leave(&self, tid: u32) -> Result<(), RtError> {
        let _enforcing = self.enforcing();
        let slot = self.slot_of(tid).ok_or(RtError::NoThread(tid))?;
        self.give_one(slot, tid)
    }

    /// Gives all threads back, and those that they make meanwhile; the enclave stays. Returns their number. Takes
    /// half a second if there are any.
    ///
    /// # Errors
    /// The error of the first thread for which the kernel refused. That thread stays in the enclave; the others are
    /// given back all the same.
    pub fn give_back(&self) -> Result<usize, RtError> {
        self.give_back_with(|| std::thread::sleep(PAUSE))
    }

    /// A copy of a thread has the policy and the CPUs that the thread had when the copy was begun, and is reported
    /// when it is done. So all threads are restored first, after which no more copies of parked threads are begun;
    /// copies that appear during the following pauses are still managed.
    pub(super) fn give_back_with(&self, mut pause: impl FnMut()) -> Result<usize, RtError> {
        let _enforcing = self.enforcing();
        self.forget_unread();
        let mut restored = Restored::default();
        self.restore_all(&mut restored);
        // A limited number of times: a process that makes threads all the time is not waited for.
        for _ in 0..PAUSES {
            if !restored.threads.is_empty() {
                pause();
                self.restore_all(&mut restored);
            }
        }
        let mut count = 0;
        loop {
            let managed = self.to_give(&restored);
            if managed.is_empty() {
                return restored.refused.map_or(Ok(count), Err);
            }
            for (slot, tid) in managed {
                count += usize::from(self.release(slot, tid, &mut restored));
            }
        }
    }

    /// Returns the managed threads, without those that could not be restored.
    fn to_give(&self, done: &Restored) -> Vec<(usize, u32)> {
        self.managed().into_iter().filter(|thread| !done.kept.contains(thread)).collect()
    }

    /// Gives back one thread, which may be restored already. Returns whether that worked.
    fn release(&self, slot: usize, tid: u32, done: &mut Restored) -> bool {
        let words = self.memory.thread(slot);
        if done.threads.contains(&(slot, tid)) && enforce::is_new(&words) {
            self.tracer.leave(slot, tid);
            return true;
        }
        self.give_one(slot, tid).map_err(|error| done.keep(slot, tid, error)).is_ok()
    }

    /// Forgets the threads that left by themselves, which their agent has not read.
    fn forget_unread(&self) {
        for slot in 0..self.memory.slots() {
            let thread = self.memory.thread(slot);
            let tid = thread.tid().load(Acquire);
            if tid != 0 && thread.live().state() == GONE {
                self.forget(&thread, tid);
            }
        }
    }

    /// Restores the threads that are not restored yet.
    fn restore_all(&self, done: &mut Restored) {
        let mut managed = self.to_give(done);
        managed.retain(|thread| !done.threads.contains(thread));
        for (slot, tid) in managed {
            match self.restore(slot, tid) {
                Ok(tid) => drop(done.threads.insert((slot, tid))),
                Err(error) => done.keep(slot, tid, error),
            }
        }
    }

    /// Restores the thread first: a child made before that is managed and given back next; a child made after it is
    /// as it should be. A child that is just being made is unmanaged and may stay parked; [`Rt::give_back`] waits
    /// for those. A thread that cannot be restored stays managed, so that its original settings are not lost.
    fn give_one(&self, slot: usize, tid: u32) -> Result<(), RtError> {
        let tid = self.restore(slot, tid)?;
        self.tracer.leave(slot, tid);
        Ok(())
    }

    /// Restores a thread but keeps it managed. Returns its number.
    fn restore(&self, slot: usize, mut tid: u32) -> Result<u32, RtError> {
        let thread = self.memory.thread(slot);
        let mut restored = enforce::restore(&thread, tid);
        for _ in 1..enforce::TRIES {
            if restored.is_err() {
                tid = self.follow(slot, tid);
                restored = enforce::restore(&thread, tid);
            }
        }
        restored.map_err(RtError::system(format!("giving thread {tid} back")))?;
        Ok(tid)
    }

    /// Updates the words of a thread whose number is no longer `tid` because it executes a program. Returns the
    /// number. A thread that ended without notice to the kernel side becomes unmanaged.
    pub(super) fn follow(&self, slot: usize, tid: u32) -> u32 {
        let thread = self.memory.thread(slot);
        if !enforce::is_renumbered(&thread, tid) {
            return tid;
        }
        let tgid = thread.tgid();
        let now = || Identity::of(tgid);
        // A process is as old as its oldest thread; a younger one has only reused the number.
        let Some(who) = now().filter(|who| who.began <= thread.began().load(Relaxed)) else {
            self.tracer.leave(slot, tid);
            return tid;
        };
        if self.tracer.renumber(slot, tid, who) {
            // A thread that ended before its number was tracked would stay forever, and so would the next one with
            // the number.
            if now() != Some(who) {
                self.tracer.leave(slot, tgid);
            }
            self.announce(slot, tgid);
        }
        tgid
    }

    fn slot_of(&self, tid: u32) -> Option<usize> {
        self.memory.slot_of(tid)
    }

    fn original_settings(&self, tid: u32) -> Result<OriginalSettings, RtError> {
        let gone = |error: io::Error| match error.raw_os_error() {
            Some(3) => RtError::NoThread(tid),
            _ => RtError::system(format!("looking at thread {tid}"))(error),
        };
        let scheduling = scheduling::of(tid).map_err(gone)?;
        let nice = scheduling::nice(tid).map_err(gone)?;
        let mask = scheduling::mask(tid).map_err(gone)?;
        if matches!(scheduling.class, Class::Deadline | Class::Ext) {
            return Err(unfit(tid, "is scheduled by deadlines or by sched_ext"));
        }
        if let Some(other) = self.elsewhere(tid) {
            return Err(unfit(tid, &format!("is in enclave `{other}`")));
        }
        if self.own_part(&mask) == [0; 16] {
            return Err(unfit(tid, "may run on none of the enclave's CPUs"));
        }
        Ok(OriginalSettings { scheduling, nice, mask })
    }

    fn elsewhere(&self, tid: u32) -> Option<String> {
        let others = Rt::enclaves().into_iter().filter(|name| *name != self.name);
        others.into_iter().find(|name| Rt::open(name).is_ok_and(|rt| rt.slot_of(tid).is_some()))
    }

    /// Returns the enclave's part of a mask.
    pub(super) fn own_part(&self, mask: &Mask) -> Mask {
        let mut own: Mask = [0; 16];
        for cpu in self.cpus.iter().map(|cpu| cpu.os_id).filter(|cpu| has(mask, *cpu)) {
            own[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        own
    }

    /// Announces a thread. It counts as blocked until then, and its events are reported already; so its word is
    /// compared with the kernel's state until both agree. The kernel side sees what happens after that.
    fn announce(&self, slot: usize, tid: u32) {
        let thread = self.memory.thread(slot);
        let change = |kind, from: u32, to| StateChange {
            slot,
            tid,
            kind,
            from: 1 << from,
            to,
            committed: None,
            info: 0,
        };
        for _ in 0..CHECKS {
            let Some(asleep) = is_asleep(tid) else { return };
            let live = thread.live();
            if live.state() == GONE {
                return;
            }
            let created = thread.live().seq().0 != 0;
            if created && asleep == (live.state() == BLOCKED) {
                return;
            }
            let (from, to) =
                if asleep { (live.state(), BLOCKED) } else { (live.state(), RUNNABLE) };
            let kind = match (created, asleep) {
                (false, _) => Kind::ThreadCreated,
                (true, true) => Kind::ThreadBlocked,
                (true, false) => Kind::ThreadWakeup,
            };
            self.tracer.report(StateChange { info: u64::from(!asleep), ..change(kind, from, to) });
        }
    }

    /// Applies a message before its agent reads it.
    pub(super) fn apply(&self, message: &Message) {
        let slot = message.thread.0 as usize;
        if !message.kind.is_of_thread() || slot >= self.memory.slots() {
            return;
        }
        let thread = self.memory.thread(slot);
        if thread.tid().load(Acquire) == message.tid {
            thread.consumed().store(message.tseq.0 as u32, Release);
            self.apply_state(slot, message.tid);
        }
    }

    /// Makes a thread's policy and CPUs agree with its words: parked if it is not committed, restored if it is not
    /// managed.
    pub(super) fn apply_state(&self, slot: usize, tid: u32) {
        let thread = self.memory.thread(slot);
        if thread.live().state() != GONE
            && !enforce::is_new(&thread)
            && !enforce::is_promoted(&thread)
        {
            return;
        }
        let _enforcing = self.enforcing();
        if thread.tid().load(Acquire) != tid {
            return;
        }
        if thread.live().state() == GONE {
            self.forget(&thread, tid);
        } else if enforce::is_new(&thread) {
            // If the kernel refuses, this is tried again with the thread's next message.
            if enforce::park_new(&thread, tid, &self.own_part(&thread.wanted())).is_err() {
                self.follow(slot, tid);
            }
        } else {
            self.demote(slot, tid);
        }
    }

    /// Frees the slot of a thread that ended or left. One that left by changing its own policy may still be
    /// confined.
    fn forget(&self, thread: &ThreadWords<'_>, tid: u32) {
        let left_by_itself = !enforce::is_new(thread);
        if left_by_itself && thread.placed() != thread.wanted() && self.slot_of(tid).is_none() {
            enforce::unconfine(thread, tid);
        }
        thread.free();
    }

    /// Returns slots and numbers of the managed threads.
    pub(super) fn managed(&self) -> Vec<(usize, u32)> {
        let of = |slot| (slot, self.memory.thread(slot).tid().load(Acquire));
        let is_managed = |(slot, tid): &(usize, u32)| {
            *tid != 0 && self.memory.thread(*slot).live().state() != GONE
        };
        (0..self.memory.slots()).map(of).filter(is_managed).collect()
    }

    /// Returns the slots of all threads, after unread messages about them have been applied. Only the agent applies
    /// them while there is one; an observer changes nothing.
    pub(super) fn scan_threads(&self) -> Vec<usize> {
        let no_agent = self.memory.agent().load(Acquire) == 0;
        let slots = if no_agent || self.is_agent() { self.memory.slots() } else { 0 };
        for slot in 0..slots {
            let tid = self.memory.thread(slot).tid().load(Acquire);
            if tid != 0 {
                self.apply_state(slot, tid);
                self.mark_read(slot);
            }
        }
        self.managed().into_iter().map(|(slot, _)| slot).collect()
    }

    /// A reader of the thread's state knows the content of its messages, unless one is still on its way.
    fn mark_read(&self, slot: usize) {
        let thread = self.memory.thread(slot);
        let seq = thread.live().seq();
        let queue = crate::model::QueueId(thread.queue().load(Relaxed));
        if self.channel(queue).is_some_and(|channel| channel.is_empty()) {
            thread.consumed().store(seq.0 as u32, Release);
        }
    }
}

fn unfit(tid: u32, why: &str) -> RtError {
    RtError::Unfit { tid, why: why.to_owned() }
}

/// Whether the kernel has the thread off its run queues; `None` if it is gone.
fn is_asleep(tid: u32) -> Option<bool> {
    let stat = Stat::of(tid).filter(|stat| !stat.has_ended())?;
    Some(stat.state != 'R')
}
