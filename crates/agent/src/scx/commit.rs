//! Transactions, written into shared memory and carried out by a run of a program.

use super::memory::TRANSACTIONS;
use super::{Scx, ScxError};
use crate::model::{FromWords as _, Group, Outcome, State, Transaction};
use crate::scx::error::system;
use heddle_bpf::Program;
use heddle_core::Ns;
use heddle_sys::clock;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The enclave's transaction slots come in regions, so that several agents can commit at once: small ones for local
/// agents, and a large one.
const SMALL: usize = 64;
const SMALLS: usize = 8;
const LARGE_AT: usize = SMALL * SMALLS;
/// The most transactions of one run.
pub(super) const LARGE: usize = TRANSACTIONS - LARGE_AT;
/// How long to retry a thread that was just being moved.
const PATIENCE: Ns = Ns(1_000_000);

/// Locks of the regions.
#[derive(Debug, Default)]
pub(super) struct Regions {
    small: [Mutex<()>; SMALLS],
    large: Mutex<()>,
}

impl Regions {
    /// Returns the first slot of a region with room for `count`, and its lock.
    fn take(&self, count: usize) -> (usize, MutexGuard<'_, ()>) {
        let small = if count > SMALL { &[][..] } else { &self.small[..] };
        for (at, region) in small.iter().enumerate() {
            match region.try_lock() {
                Ok(right) => return (at * SMALL, right),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return (at * SMALL, poisoned.into_inner());
                }
                Err(TryLockError::WouldBlock) => {}
            }
        }
        (LARGE_AT, self.large.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// `enum hd_operation`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Operation {
    Recall,
    Preempt,
    Associate,
    Offer,
    Revoke,
}

impl Scx {
    /// Runs a program with a `struct hd_call` and returns its result.
    fn call(&self, program: &Program, operation: u32, first: u32, count: u32, value: u64) -> i64 {
        let low = u64::from(self.id) | u64::from(operation) << 32;
        let mut words = [low, u64::from(first) | u64::from(count) << 32, value, 0];
        match program.run(&mut words) {
            Ok(_) => words[3].cast_signed(),
            Err(error) => -i64::from(error.raw_os_error().unwrap_or(1)),
        }
    }

    pub(super) fn control(&self, what: Operation, first: u32, count: u32, value: u64) -> i64 {
        self.call(&self.calls.control, what as u32, first, count, value)
    }

    pub(super) fn commit_all(&self, transactions: &mut [Transaction], how: Group) -> usize {
        if how == Group::AllOrNothing {
            if transactions.len() > LARGE {
                transactions.iter_mut().for_each(|one| one.outcome = Outcome::Invalid);
                return 0;
            }
            return self.commit_part(transactions, how);
        }
        transactions.chunks_mut(LARGE).map(|part| self.commit_part(part, how)).sum()
    }

    fn commit_part(&self, part: &mut [Transaction], how: Group) -> usize {
        self.commit_once(part, how, 0);
        if part.iter().any(|one| self.should_retry(one)) {
            self.retry(part, how);
        }
        part.iter().filter(|one| one.outcome.is_committed()).count()
    }

    /// Retries: a message leaves the kernel a moment before its thread is in the queue where a commit finds it.
    fn retry(&self, part: &mut [Transaction], how: Group) {
        let end = clock::now() + PATIENCE;
        while clock::now() < end && part.iter().any(|one| self.should_retry(one)) {
            match how {
                Group::AllOrNothing => self.commit_once(part, how, 0),
                Group::Each => {
                    let again = part.iter_mut().filter(|one| one.outcome == Outcome::Again);
                    again.for_each(|one| self.commit_once(std::slice::from_mut(one), how, 0));
                }
            }
            core::hint::spin_loop();
        }
    }

    fn should_retry(&self, one: &Transaction) -> bool {
        let now = || crate::Backend::thread(self, one.thread);
        one.outcome == Outcome::Again && now().state == State::Parked
    }

    /// Commits a group whose step `fault`, counted from 1, fails. Returns true if there is such a step, so that the
    /// group was not committed. For tests.
    #[doc(hidden)]
    pub fn commit_with_fault(&self, group: &mut [Transaction], fault: u64) -> bool {
        assert!((1..=LARGE).contains(&group.len()), "a group of one run");
        self.commit_once(group, Group::AllOrNothing, fault);
        !group.iter().all(|one| one.outcome.is_committed())
    }

    fn commit_once(&self, part: &mut [Transaction], how: Group, fault: u64) {
        let (first, _right) = self.regions.take(part.len());
        for (at, one) in part.iter_mut().enumerate() {
            one.outcome = Outcome::Open;
            self.write(first + at, one);
        }
        let program = if how == Group::Each { &self.calls.commit } else { &self.calls.group };
        let start = self.id as usize * TRANSACTIONS + first;
        let result = self.call(program, 0, start as u32, part.len() as u32, fault);
        for (at, one) in part.iter_mut().enumerate() {
            one.outcome = if result < 0 { Outcome::NotYours } else { self.outcome(first + at) };
        }
    }

    fn write(&self, at: usize, one: &Transaction) {
        // Beyond the table; the kernel answers that it is invalid.
        let os_cpu = self.cpus.get(one.cpu.index()).map_or(u32::MAX, |cpu| cpu.os_id);
        for (word, value) in one.to_words(os_cpu).into_iter().enumerate() {
            self.memory.transaction(self.id, at, word).store(value, Release);
        }
    }

    fn outcome(&self, at: usize) -> Outcome {
        let word = |word| self.memory.transaction(self.id, at, word).load(Acquire);
        Outcome::from_words(std::array::from_fn(word)).unwrap_or(Outcome::Invalid)
    }
}

/// Returns the result of a call; a negative one is an error number.
pub(super) fn answer(what: &str, result: i64) -> Result<u64, ScxError> {
    u64::try_from(result).map_err(|_| {
        let number = i32::try_from(-result).unwrap_or(0);
        system(what)(std::io::Error::from_raw_os_error(number))
    })
}
