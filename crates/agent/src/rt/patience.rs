//! Agents that hang. Over sched_ext the kernel's programs notice; here the enclave's guardian has to look.

use super::Rt;
use super::memory::EnclaveField;
use crate::Backend as _;
use crate::model::Phase;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};

/// How often it is looked in the time that a thread may wait: a look reads a word of every slot.
const LOOKS: u64 = 4;

/// What the last look has left.
#[derive(Default)]
pub(super) struct Looked {
    at: u64,
    /// Which agent that was, and since when it can be held to account: threads may have waited for its coming.
    generation: u64,
    since: u64,
}

/// Whether it is time for a look, and since when the agent can be held to account.
fn due(looked: &Mutex<Looked>, generation: u64, now: u64, patience: u64) -> Option<u64> {
    let mut looked = looked.lock().unwrap_or_else(PoisonError::into_inner);
    if looked.generation != generation {
        *looked = Looked { at: now, generation, since: now };
    }
    if now.saturating_sub(looked.at) < patience / LOOKS {
        return None;
    }
    looked.at = now;
    Some(looked.since)
}

impl Rt {
    /// The enclave is an orphan from now on if its agent lets a thread that it could commit wait for longer than the enclave has
    /// patience. To be called again and again by its guardian.
    pub fn look(&self) {
        let word = |field| self.memory.enclave(field).load(Relaxed);
        let patience = word(EnclaveField::Patience);
        let (active, orphan) = (Phase::Active as u32, Phase::Orphan as u32);
        if patience == 0 || self.memory.phase().load(Acquire) != active {
            return;
        }
        let now = self.now().0;
        let generation = word(EnclaveField::Generation);
        let Some(since) = due(&self.looked, generation, now, patience) else { return };
        let is_late = |began: u64| now.saturating_sub(began.max(since)) > patience;
        if (0..self.memory.slots()).filter_map(|slot| self.waits_since(slot)).any(is_late) {
            // One that has detached meanwhile does not hang.
            let _ = self.memory.phase().compare_exchange(active, orphan, AcqRel, Relaxed);
        }
    }

    /// Since when a thread waits for its agent; none that sleeps, is committed, or may run on none of the enclave's CPUs, where no agent
    /// can help it and any member can go.
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
        // 0: the kernel's half has not said yet.
        let began = Some(thread.runnable_at()).filter(|began| *began != 0)?;
        waits().then_some(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_all_the_patience_from_its_coming() {
        let looked = Mutex::default();
        let at = |generation, now| due(&looked, generation, now, 400);
        assert_eq!(
            (at(1, 1000), at(1, 1099), at(1, 1100), at(1, 1150)),
            (None, None, Some(1000), None)
        );
        assert_eq!((at(2, 1300), at(2, 1400)), (None, Some(1300)));
        assert_eq!(at(2, 0), None, "a clock that goes back");
    }
}
