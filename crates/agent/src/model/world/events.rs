//! Future events, in order of time and, at one instant, of their insertion.

use super::super::machine::Machine;
use heddle_core::{CpuId, Ns, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

pub(super) enum Event {
    /// A thread that has had its CPU since then has done its step.
    Done(TaskId, Ns),
    /// The thread with this kernel number has slept enough.
    Wake(TaskId, u32),
    /// An interrupt reaches a CPU of the enclave.
    Arrive(CpuId),
    Other(Box<dyn FnOnce(&Machine) + Send>),
}

#[derive(Default)]
pub(super) struct Events {
    order: BinaryHeap<Reverse<(Ns, u64)>>,
    waiting: BTreeMap<u64, Event>,
    count: u64,
}

impl Events {
    pub fn push(&mut self, at: Ns, event: Event) {
        self.count += 1;
        self.order.push(Reverse((at, self.count)));
        self.waiting.insert(self.count, event);
    }

    pub fn next_at(&self) -> Option<Ns> {
        self.order.peek().map(|Reverse((at, _))| *at)
    }

    pub fn pop(&mut self) -> Option<Event> {
        let Reverse((_, number)) = self.order.pop()?;
        self.waiting.remove(&number)
    }
}
