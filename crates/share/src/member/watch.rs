//! Looking after a member's CPUs from a thread of its own, each millisecond while it has work.

use std::sync::atomic::{AtomicU64, Ordering};

use heddle_core::Ns;
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::{clock, thread};

use super::{Member, OwnCpu};
use crate::abi::raised_priority;
use crate::handover::{self, Cpu as _, State};
use crate::wire::{self, Message};

/// How long a member waits before it asks again, and before it reports that to the broker.
const ASK_AGAIN: Ns = Ns::from_ms(1);
const REPORT: Ns = Ns::from_ms(10);

/// How long a worker waits before it is made to look again.
const LOOK_AGAIN: Ns = Ns::from_ms(4);

/// A worker that has not slept for so long becomes ordinary for a while: the kernel ends processes whose real-time
/// threads never sleep.
const REST_AFTER: Ns = Ns::from_ms(150);
/// After this it is made an ordinary thread until it is next heard of.
const DEMOTE_AFTER: Ns = Ns::from_ms(300);

/// What [`Member::watch`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The worker does not want the CPU.
    Idle,
    /// It has the CPU or wants it.
    Busy,
    /// It must be interrupted, because it is to make way or has run for long without sleeping.
    MakeWay,
}

impl Member {
    /// Returns whether another member of the same rank waits, and the CPU has been active for its slice.
    pub(super) fn slice_is_over(&self, cpu: usize) -> bool {
        let own = OwnCpu { member: self, cpu };
        handover::equal(&own).is_some() && {
            let weight = self.entry(self.me()).weight.load(Ordering::Relaxed).clamp(1, 1 << 20);
            let slice = self.header().slice.load(Ordering::Relaxed).min(1 << 40);
            let active =
                clock::now().0.saturating_sub(self.slot(cpu).since.load(Ordering::Relaxed));
            active >= slice.saturating_mul(weight.into()) / 1024
        }
    }

    /// Looks after `cpu`, each millisecond while its worker has work, on a thread of its own.
    pub fn watch(&self, cpu: usize) -> Watched {
        if self.is_removed() {
            return Watched::Idle;
        }
        self.drain(cpu);
        let (own, local, now) = (OwnCpu { member: self, cpu }, &self.locals[cpu], clock::now().0);
        let since = self.slot(cpu).since.load(Ordering::Relaxed);
        self.look_for_equals(cpu);
        match State::of(self.slot(cpu).state.load(Ordering::Acquire)) {
            State::Idle if own.is_resting() => {
                if own.has_rested() {
                    // Below the others' real-time threads it would not hear that it may be one again.
                    let priority = raised_priority(self.priority.load(Ordering::Relaxed));
                    let tid = self.slot(cpu).tid.load(Ordering::Relaxed);
                    let _ = scheduling::set(tid, Scheduling::fifo(priority));
                    return Watched::MakeWay;
                }
            }
            State::Idle => return Watched::Idle,
            State::Wanting => self.insist(&own, now, now.saturating_sub(since)),
            State::Active => {
                // The rule was broken, and a worse one is still there.
                if handover::active(&own).is_some() {
                    self.insist(&own, now, ASK_AGAIN.0);
                }
                if self.is_realtime() && !local.ordinary.load(Ordering::Relaxed) {
                    let ran = now.saturating_sub(local.slept_at.load(Ordering::Relaxed));
                    if own.has_used_up_realtime(now) || ran >= REST_AFTER.0 {
                        local.must_rest.store(true, Ordering::Relaxed);
                    }
                    if ran >= DEMOTE_AFTER.0 {
                        self.demote_own(cpu);
                    }
                }
                if self.is_asked(cpu) {
                    return Watched::MakeWay;
                }
            }
        }
        Watched::Busy
    }

    /// Gives the worker of `cpu` its priority if an equal has come, or the higher one if it sleeps.
    pub(super) fn look_for_equals(&self, cpu: usize) {
        let (own, local) = (OwnCpu { member: self, cpu }, &self.locals[cpu]);
        let (priority, tid) =
            (self.priority.load(Ordering::Relaxed), self.slot(cpu).tid.load(Ordering::Relaxed));
        if priority == 0 || tid == 0 || own.is_resting() || !handover::has_peer_behind(&own) {
            return;
        }
        let was_ordinary = local.ordinary.swap(false, Ordering::Relaxed);
        let sleeps = State::of(self.slot(cpu).state.load(Ordering::Acquire)) == State::Idle;
        let to = match sleeps && !local.raised.swap(true, Ordering::Relaxed) {
            true => raised_priority(priority),
            false if was_ordinary => priority,
            false => return,
        };
        self.has_slept(cpu);
        let _ = scheduling::set(tid, Scheduling::fifo(to));
    }

    /// The worker of `cpu` does not come to a point at which it can rest: it loses its real-time priority until it
    /// does.
    fn demote_own(&self, cpu: usize) {
        self.has_slept(cpu);
        self.locals[cpu].demoted.store(true, Ordering::Relaxed);
        let _ = scheduling::set(self.slot(cpu).tid.load(Ordering::Relaxed), Scheduling::ORDINARY);
    }

    /// Asks the member that has the CPU again, and reports to the broker after a while.
    fn insist(&self, own: &OwnCpu<'_>, now: u64, waited: u64) {
        let local = &self.locals[own.cpu];
        let every = |last: &AtomicU64, period: Ns| {
            let due = now.saturating_sub(last.load(Ordering::Relaxed)) >= period.0;
            if due {
                last.store(now, Ordering::Relaxed);
            }
            due
        };
        if waited < ASK_AGAIN.0 {
            return;
        }
        let (holder, rank) = (handover::active(own), own.rank(own.me()));
        if let Some(app) = holder.filter(|&app| own.rank(app) > rank)
            && every(&local.asked_at, ASK_AGAIN)
        {
            own.ask(app);
        }
        if waited >= LOOK_AGAIN.0 && every(&local.nudged_at, LOOK_AGAIN) {
            self.nudge(own.cpu);
        }
        // To wait for a better one is no complaint.
        let complains = waited >= REPORT.0 && holder.is_none_or(|app| own.rank(app) >= rank);
        if complains && every(&local.reported_at, REPORT) {
            self.report(&Message::Alert(own.cpu as u32));
        }
    }

    /// Makes the worker of `cpu` look again at what it waits for, if it sleeps. If it then runs although nothing has
    /// moved, it knows that the one for which it waits does not.
    pub(super) fn nudge(&self, cpu: usize) {
        self.locals[cpu].nudged.store(true, Ordering::Relaxed);
        thread::signal(self.slot(cpu).tid.load(Ordering::Relaxed), self.signal);
    }

    fn report(&self, message: &Message) {
        if let Some(socket) = &*self.socket.lock().unwrap_or_else(|e| e.into_inner()) {
            let _ = wire::send(socket, message, &[]);
        }
    }

    /// Empties the pipe by which the member was asked: a write is heard whether or not the pipe is empty, but not if it
    /// is full.
    fn drain(&self, cpu: usize) {
        let mut bytes = [0; 64];
        while rustix::io::read(&self.asked_by[cpu], &mut bytes).is_ok_and(|n| n == bytes.len()) {}
    }
}
