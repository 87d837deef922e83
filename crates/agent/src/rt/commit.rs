//! Transactions: first the words of a whole group, then the system calls.

use super::memory::{EnclaveField, ThreadWords};
use super::state_word::{BLOCKED, GONE, RUNNABLE, StateWord};
use super::tracer::StateChange;
use super::{Rt, enforce};
use crate::model::{CpuOccupant, Group, Kind, Outcome, Phase, Transaction};
use heddle_sys::scheduling::Mask;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How often to retry a commit of a thread whose word changes without a message, by another commit of it.
const RACES: usize = 4;

/// Returns the mask of one CPU.
fn only(os_cpu: u32) -> Mask {
    let mut mask: Mask = [0; 16];
    if let Some(word) = mask.get_mut(os_cpu as usize / 64) {
        *word = 1 << (os_cpu % 64);
    }
    mask
}

pub(super) fn has(mask: &Mask, os_cpu: u32) -> bool {
    mask.get(os_cpu as usize / 64).is_some_and(|word| word >> (os_cpu % 64) & 1 == 1)
}

/// A thread that has lost its CPU in its word, and is to lose it in fact.
type Displaced = (usize, u32);

impl Rt {
    /// Carries out a group. All-or-nothing groups are refused, even of one transaction: a displaced thread has lost
    /// its CPU, and its message is sent, before the kernel decides whether the other may have it.
    pub(super) fn carry_out(&self, transactions: &mut [Transaction], how: Group) -> usize {
        let _enforcing = self.enforcing();
        let refusal = self.refusal(how);
        let mut displaced = Vec::new();
        for transaction in &mut *transactions {
            transaction.outcome = refusal.unwrap_or_else(|| self.mark(transaction, &mut displaced));
        }
        for transaction in transactions.iter_mut().filter(|t| t.outcome.is_committed()) {
            transaction.outcome = self.enforce(transaction);
        }
        // Only now, so that the CPU is not without a committed thread in between.
        for (slot, tid) in displaced {
            self.demote(slot, tid);
        }
        let committed = transactions.iter().filter(|t| t.outcome.is_committed()).count();
        self.count(committed, transactions.len() - committed);
        committed
    }

    fn refusal(&self, how: Group) -> Option<Outcome> {
        if how == Group::AllOrNothing {
            return Some(Outcome::Invalid);
        }
        (!self.is_agent()).then_some(Outcome::NotYours)
    }

    /// Whether this process is the enclave's agent.
    pub(super) fn is_agent(&self) -> bool {
        self.memory.phase().load(Acquire) == Phase::Active as u32
            && self.memory.agent().load(Relaxed) == std::process::id()
    }

    fn count(&self, committed: usize, failed: usize) {
        self.memory.enclave(EnclaveField::Committed).fetch_add(committed as u64, Relaxed);
        self.memory.enclave(EnclaveField::Failed).fetch_add(failed as u64, Relaxed);
    }

    /// Commits in the words. Threads that this displaces are parked there, and their messages sent.
    fn mark(&self, transaction: &Transaction, displaced: &mut Vec<Displaced>) -> Outcome {
        let slot = transaction.thread.0 as usize;
        let Some(os_cpu) = self.os_cpu(transaction.cpu).filter(|_| slot < self.memory.slots())
        else {
            return Outcome::Invalid;
        };
        let thread = self.memory.thread(slot);
        for _ in 0..RACES {
            let live = thread.live();
            if let Err(outcome) = self.check(transaction, &thread, live, os_cpu) {
                return outcome;
            }
            let holders = self.committed_to(os_cpu);
            if thread.replace_state(live, live.commit_to(os_cpu)) {
                thread.committed_at().store(heddle_sys::clock::now().0, Relaxed);
                self.remember(slot, os_cpu);
                self.displace(&holders, os_cpu, transaction.preempt, displaced);
                return Outcome::Committed;
            }
        }
        Outcome::Again
    }

    fn check(
        &self,
        transaction: &Transaction,
        thread: &ThreadWords<'_>,
        live: StateWord,
        os_cpu: u32,
    ) -> Result<(), Outcome> {
        let cpu = self.memory.cpu(os_cpu);
        let agent_stale = |(queue, aseq): (crate::model::QueueId, crate::model::Seq)| {
            self.memory.queue(queue.0).is_none_or(|words| words.aseq() != aseq.0)
        };
        let refusals = [
            (
                live.state() == GONE || thread.tid().load(Acquire) != transaction.tid,
                Outcome::NoThread,
            ),
            (!self.owns(os_cpu), Outcome::NotYours),
            (transaction.aseq.is_some_and(agent_stale), Outcome::AgentStale),
            (transaction.tseq.is_some_and(|tseq| tseq != live.seq()), Outcome::Stale),
            (live.state() == BLOCKED, Outcome::NotRunnable),
            (live.committed().is_some(), Outcome::OnCpu),
            (!has(&thread.wanted(), os_cpu), Outcome::Affinity),
            (cpu.online().load(Relaxed) == 0, Outcome::CpuOffline),
            (
                transaction.only_free && cpu.occupant() == CpuOccupant::Realtime as u32,
                Outcome::CpuBusy,
            ),
        ];
        refusals.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, outcome)| Err(outcome))
    }

    /// Returns the threads that are committed to a CPU: at most two, the later one first.
    pub(super) fn committed_to(&self, os_cpu: u32) -> Vec<usize> {
        let is_still = |slot: &usize| {
            let live = self.memory.thread(*slot).live();
            live.is_runnable() && live.committed() == Some(os_cpu)
        };
        let mut found: Vec<usize> = self.memory.committed_to(os_cpu).filter(is_still).collect();
        found.dedup();
        found
    }

    fn remember(&self, slot: usize, os_cpu: u32) {
        let before = self.committed_to(os_cpu).into_iter().find(|other| *other != slot);
        self.memory.remember_committed(os_cpu, slot, before);
    }

    /// Whether a thread is on the CPU that it is committed to.
    pub(super) fn is_on(&self, slot: usize, os_cpu: u32) -> bool {
        self.memory.thread(slot).running_on() == Some(os_cpu)
    }

    /// Parks the threads in the way of a commit: the one on the CPU if it is to be preempted, and one that waits
    /// for it.
    fn displace(
        &self,
        holders: &[usize],
        os_cpu: u32,
        preempt: bool,
        displaced: &mut Vec<Displaced>,
    ) {
        for &slot in holders {
            let runs = self.is_on(slot, os_cpu);
            if runs && !preempt {
                continue;
            }
            displaced.extend(self.park(slot, os_cpu, !runs));
        }
    }

    /// Parks a thread in its word and sends its message. `None` if it was no longer committed there.
    pub(super) fn park(&self, slot: usize, os_cpu: u32, was_latched: bool) -> Option<Displaced> {
        let tid = self.memory.thread(slot).tid().load(Acquire);
        let (kind, committed) = (Kind::ThreadPreempted, Some(os_cpu));
        let (from, to, info) = (1 << RUNNABLE, RUNNABLE, was_latched.into());
        let reported =
            self.tracer.report(StateChange { slot, tid, kind, from, to, committed, info });
        reported.then_some((slot, tid))
    }

    /// Moves a committed thread to its CPU and promotes it.
    fn enforce(&self, transaction: &Transaction) -> Outcome {
        let (slot, tid) = (transaction.thread.0 as usize, transaction.tid);
        let Some(os_cpu) = self.os_cpu(transaction.cpu) else { return Outcome::Invalid };
        let thread = self.memory.thread(slot);
        if let Err(error) = enforce::place(&thread, tid, &only(os_cpu)) {
            self.unmark(&thread, os_cpu);
            self.follow(slot, tid);
            // `EINVAL`: the CPU is offline, or forbidden by the thread's cgroup.
            let refused = error.raw_os_error() == Some(22);
            return if refused { self.refusal_reason(os_cpu) } else { Outcome::Again };
        }
        match enforce::promote(&thread, tid, transaction.class) {
            Ok(()) => Outcome::Committed,
            Err(_) => {
                self.unmark(&thread, os_cpu);
                self.follow(slot, tid);
                Outcome::Again
            }
        }
    }

    fn refusal_reason(&self, os_cpu: u32) -> Outcome {
        let file = format!("/sys/devices/system/cpu/cpu{os_cpu}/online");
        // CPU 0 may have no such file; it is online.
        let is_off = std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "0");
        if is_off { Outcome::CpuOffline } else { Outcome::Affinity }
    }

    fn unmark(&self, thread: &ThreadWords<'_>, os_cpu: u32) {
        let live = thread.live();
        if live.committed() == Some(os_cpu) {
            // Fails only if a newer message has ended the commitment.
            thread.replace_state(live, live.uncommitted());
        }
    }

    /// Parks a thread in fact that is no longer committed.
    pub(super) fn demote(&self, slot: usize, tid: u32) {
        let thread = self.memory.thread(slot);
        let is_same = thread.tid().load(Acquire) == tid;
        if is_same && enforce::is_promoted(&thread) && thread.live().committed().is_none() {
            // If the kernel refuses, the thread keeps its priority until its next message, when it is tried again.
            if enforce::demote(&thread, tid).is_err() {
                self.follow(slot, tid);
            }
        }
    }

    /// Takes a CPU from the committed thread on it, or from one that was interrupted there by something above it.
    pub(super) fn take(&self, os_cpu: u32) -> bool {
        let _enforcing = self.enforcing();
        let holders = self.committed_to(os_cpu);
        let above = [CpuOccupant::Agent as u32, CpuOccupant::Realtime as u32];
        let is_above = above.contains(&self.memory.cpu(os_cpu).occupant());
        let on_it = holders.iter().find(|slot| self.is_on(**slot, os_cpu));
        let under = holders.last().filter(|_| is_above);
        let parked = on_it.or(under).and_then(|slot| self.park(*slot, os_cpu, false));
        parked.is_some_and(|(slot, tid)| {
            self.demote(slot, tid);
            true
        })
    }
}
