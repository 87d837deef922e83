//! Threads that the kernel's programs schedule but no agent can. Opting in (SCHED_EXT) takes no privilege. Such
//! threads run below ordinary ones, and if one of them waits for half a minute, the kernel ends the scheduler for
//! all. So they are made ordinary before.

use super::Scx;
use super::memory::Memory;
use super::threads::{ext_threads, give_back_one, keeps_number};
use crate::Backend as _;
use crate::identity::{Change, Identity};
use crate::model::State;
use heddle_core::{Ns, TaskId};
use heddle_sys::scheduling::Scheduling;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

/// How long a member may wait on CPUs outside the enclave.
const OUTSIDE: Ns = Ns(5_000_000_000);

/// The last observation of unmanaged threads.
#[derive(Debug, Default)]
pub(super) struct Unmanaged {
    /// The number of threads that had opted in so far.
    opted_in: u64,
    seen: BTreeMap<u32, Identity>,
}

impl Scx {
    /// Makes threads ordinary that no agent can commit, so that none waits until the kernel ends the scheduler:
    /// threads of any user that opted in without an enclave and were there the last time as well, and this
    /// enclave's threads that have waited for long on CPUs outside it. Returns their number. To be called every few
    /// seconds; reads /proc only while there are such threads.
    pub fn release_unmanaged(&self) -> usize {
        if !self.is_loaded() {
            return 0;
        }
        let mut known = self.unmanaged.lock().unwrap_or_else(PoisonError::into_inner);
        let opted_in = self.memory.unmanaged() + self.memory.without_slot();
        let outsiders = self.slots().filter(|&slot| self.waits_outside(slot)).collect::<Vec<_>>();
        let left = outsiders
            .into_iter()
            .filter(|&slot| give_back_one(&self.memory, self.id, slot).unwrap_or(false));
        let mut made = left.count();
        if opted_in == known.opted_in && known.seen.is_empty() {
            return made;
        }
        let now = unmanaged(&self.memory);
        // A thread that is just joining has the class before it has its slot.
        for (tid, who) in now.iter().filter(|(tid, who)| known.seen.get(tid) == Some(who)) {
            let is_it = || Identity::of(*tid) == Some(*who);
            let done = Change::Policy(Scheduling::ORDINARY).make(*tid, is_it);
            // Those that remain are found again the next time.
            made += usize::from(done.is_ok());
        }
        *known = Unmanaged { opted_in, seen: now };
        made
    }

    fn waits_outside(&self, slot: usize) -> bool {
        let task = TaskId(slot as u32);
        let word = self.thread(task);
        let waited = self.now().0.saturating_sub(word.runnable_at.0);
        word.state == State::Parked && waited > OUTSIDE.0 && self.affinity(task).is_empty()
    }
}

/// Returns all threads of the machine that the kernel's programs schedule and that have no slot.
fn unmanaged(memory: &Memory) -> BTreeMap<u32, Identity> {
    let slots = || (0..memory.slots()).filter(|&slot| memory.thread_enclave(slot) != 0);
    let members: BTreeSet<u32> = slots().map(|slot| memory.thread_tid(slot)).collect();
    // Threads that execute a program have a number that their slots do not have yet.
    let execute: BTreeSet<u32> = slots()
        .filter(|&slot| !keeps_number(memory, slot))
        .map(|slot| memory.thread_tgid(slot))
        .collect();
    ext_threads()
        .map(|(_, tid)| tid)
        .filter(|tid| !members.contains(tid) && !execute.contains(tid))
        .filter_map(|tid| Some((tid, Identity::of(tid)?)))
        .collect()
}
