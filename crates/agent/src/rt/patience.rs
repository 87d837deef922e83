//! Hung agents. Over sched_ext the kernel's programs notice them; here the enclave's guardian checks.

use super::Rt;
use super::memory::EnclaveField;
use crate::Backend as _;
use crate::model::Phase;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};

/// The number of checks within the enclave's patience: a check reads a word of every slot.
const CHECKS: u64 = 4;

/// The result of the last check.
#[derive(Default)]
pub(super) struct LastCheck {
    at: u64,
    /// The agent of the last check, and since when it is accountable: threads may have waited for it to come.
    generation: u64,
    since: u64,
}

/// Returns since when the agent is accountable, if a check is due.
fn due(last_check: &Mutex<LastCheck>, generation: u64, now: u64, patience: u64) -> Option<u64> {
    let mut last_check = last_check.lock().unwrap_or_else(PoisonError::into_inner);
    if last_check.generation != generation {
        *last_check = LastCheck { at: now, generation, since: now };
    }
    if now.saturating_sub(last_check.at) < patience / CHECKS {
        return None;
    }
    last_check.at = now;
    Some(last_check.since)
}

impl Rt {
    /// Makes the enclave an orphan if its agent lets a thread that it could commit wait for longer than the
    /// enclave's patience. The guardian calls this periodically.
    pub fn check_patience(&self) {
        let word = |field| self.memory.enclave(field).load(Relaxed);
        let patience = word(EnclaveField::Patience);
        let (active, orphan) = (Phase::Active as u32, Phase::Orphan as u32);
        if patience == 0 || self.memory.phase().load(Acquire) != active {
            return;
        }
        let now = self.now().0;
        let generation = word(EnclaveField::Generation);
        let Some(since) = due(&self.last_check, generation, now, patience) else { return };
        let is_late = |began: u64| now.saturating_sub(began.max(since)) > patience;
        if (0..self.memory.slots()).filter_map(|slot| self.waits_since(slot)).any(is_late) {
            // An agent that has detached meanwhile does not hang.
            let _ = self.memory.phase().compare_exchange(active, orphan, AcqRel, Relaxed);
        }
    }

    /// Returns since when a thread waits for its agent. None if it sleeps, is committed, or may run on none of the
    /// enclave's CPUs: no agent can help there, and any member can do that.
    fn waits_since(&self, slot: usize) -> Option<u64> {
        let thread = self.memory.thread(slot);
        let waits = || {
            let live = thread.live();
            live.is_runnable() && live.committed().is_none()
        };
        if thread.tid().load(Acquire) == 0 || !waits() || self.own_part(&thread.wanted()) == [0; 16]
        {
            return None;
        }
        // 0: the kernel side has not recorded it yet.
        let began = Some(thread.runnable_at()).filter(|began| *began != 0)?;
        waits().then_some(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_all_the_patience_from_its_coming() {
        let last_check = Mutex::default();
        let at = |generation, now| due(&last_check, generation, now, 400);
        assert_eq!(
            (at(1, 1000), at(1, 1099), at(1, 1100), at(1, 1150)),
            (None, None, Some(1000), None)
        );
        assert_eq!((at(2, 1300), at(2, 1400)), (None, Some(1300)));
        assert_eq!(at(2, 0), None, "a clock that goes back");
    }
}
