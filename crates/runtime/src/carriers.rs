//! The free carriers of a run queue: contexts that poll futures ([`crate::carrier`]).

use crate::task::{TaskRef, Upkeep};

/// The free carriers of a run queue, under its lock.
pub(crate) struct Carriers {
    /// The one that became free last; each knows the next ([`next_carrier`](crate::task::Task::next_carrier)).
    free: Option<TaskRef>,
    len: usize,
    /// The least number of them: one for each CPU of the run queue.
    least: usize,
}

/// How many free carriers a CPU keeps. In virtual time, all: one that ends would be a step of the schedule.
const KEEP: usize = if cfg!(virtual_time) { 1 << 20 } else { 64 };

impl Carriers {
    pub(crate) fn new(cpus: usize) -> Carriers {
        Carriers { free: None, len: 0, least: cpus }
    }

    /// Takes a free carrier, which is told what it is to see to.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<TaskRef> {
        let carrier = self.take_last()?;
        carrier.get().upkeep.set(self.upkeep());
        Some(carrier)
    }

    /// Returns what is to be done about their number.
    #[inline(always)]
    pub(crate) fn upkeep(&self) -> Upkeep {
        match self.len {
            len if len < self.least => Upkeep::Make,
            len if len > KEEP * self.least => Upkeep::End,
            _ => Upkeep::None,
        }
    }

    /// Adds a carrier that is off its stack once the lock is released.
    #[inline(always)]
    pub(crate) fn add(&mut self, carrier: TaskRef) {
        carrier.get().next_carrier.set(self.free.replace(carrier));
        self.len += 1;
    }

    /// Takes one that is to be ended.
    pub(crate) fn take_surplus(&mut self) -> Option<TaskRef> {
        if self.upkeep() == Upkeep::End { self.take_last() } else { None }
    }

    /// Takes one, as the runtime ends.
    #[inline(always)]
    pub(crate) fn take_last(&mut self) -> Option<TaskRef> {
        let carrier = self.free?;
        self.free = carrier.get().next_carrier.get();
        self.len -= 1;
        Some(carrier)
    }
}
