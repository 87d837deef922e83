//! The driver: how every hook calls a policy.
//!
//! A hook (the runtime, the agents, the event queue, the simulator, the test kit) owns tasks, CPUs and locks. The
//! driver owns the conversation with the policy: it makes each call, publishes the length of the queue afterwards,
//! checks the answer, and records the step. So a policy sees the same calls in the same order everywhere, and is held
//! to the same rules everywhere.
//!
//! ```text
//!   hook                     driver                                    policy
//!   ----                     ------                                    ------
//!   task arrives  ------->   Driver::place, RunQueue::enqueue   --->   place, enqueue
//!   CPU is free   ------->   RunQueue::dequeue  <-- Proposal    --->   dequeue
//!                            Driver::search     <-- Stolen      --->   balance, steal (under the victim's lock)
//!   task leaves   ------->   RunQueue::block, exit, enqueue     --->   block, task_exit, enqueue
//!   time passes   ------->   RunQueue::tick                     --->   tick
//!   dispatcher    ------->   RunQueue::poll     <-- Proposal    --->   poll
//! ```
//!
//! # Invariants
//!
//! - **D1** A [`Proposal`] ends in exactly one way: committed, rejected (`CommitFailed`), migrated or withdrawn.
//!   Dropping it panics.
//! - **D2** The length of a queue is published before its lock can be released: every method of [`RunQueue`] that may
//!   change it ends with [`Hook::publish`].
//! - **D3** An answer that breaks a [`Rule`] never reaches the hook.
//! - **D4** Searching for work asks `balance` at most [`ATTEMPTS`] times for each CPU, and takes at most
//!   [`STEAL_LIMIT`] tasks.
//! - **D5** Nothing here allocates, locks, or reads a clock. All of it is generic over policy and hook, and inlined.

mod needs;
mod proposal;
mod queue;
mod rule;
mod search;
#[cfg(test)]
mod tests;
mod turn;

pub use needs::{Abilities, Lacks};
pub use proposal::Proposal;
pub use queue::RunQueue;
pub use rule::Rule;
pub use search::{ATTEMPTS, OwnedQueues, STEAL_LIMIT, SearchResult, Stolen, Victims};
pub use turn::TurnTime;

use crate::{CpuId, Cx, EventKind, Model, Policy, TaskId};
use core::mem;

/// What a hook does for the driver.
pub trait Hook {
    /// The hook's handle of a task taken out of a queue: a reference to it, or just its number.
    type Claimed: Copy;

    /// Publishes how many tasks wait in this call's queue. Called while the caller still owns the queue.
    fn publish(&self, len: usize);

    /// The policy proposes `task`: records that it no longer waits in this queue. Returns `None` if it did not wait
    /// there, which breaks [`Rule::NotWaiting`].
    fn claim(&self, task: TaskId) -> Option<Self::Claimed>;

    /// Records an event of `task` on `cpu`. Hooks that record no schedule do nothing, at no cost.
    #[inline(always)]
    fn record(&self, cpu: CpuId, task: TaskId, what: EventKind) {
        let _ = (cpu, task, what);
    }

    /// `policy` broke `rule`. A hook that runs real programs reports it and aborts: continuing would run a task twice,
    /// or never.
    fn broke(&self, policy: &'static str, rule: Rule) -> !;

    /// `policy` panicked in its method `call` and the panic is unwinding to the hook. A hook that holds locks reports
    /// it and aborts; returning lets the panic continue.
    fn panicked(&self, policy: &'static str, call: &'static str) {
        let _ = (policy, call);
    }
}

/// A call of a policy on behalf of one CPU.
pub struct Driver<'a, P: Policy, H: Hook> {
    policy: &'a P,
    cx: Cx<'a, P::Task>,
    hook: H,
}

impl<'a, P: Policy, H: Hook> Driver<'a, P, H> {
    /// Returns a call for `cx.cpu`.
    #[inline(always)]
    pub fn new(policy: &'a P, cx: Cx<'a, P::Task>, hook: H) -> Self {
        Driver { policy, cx, hook }
    }

    /// Adds a queue that the caller owns or has locked: that of `cx.cpu`, a victim's, or in the central model the only
    /// one.
    #[inline(always)]
    pub fn on(self, queue: &'a mut P::Queue) -> RunQueue<'a, P, H> {
        RunQueue { driver: self, queue }
    }

    /// A task begins its life.
    #[inline]
    pub fn init(&self, task: TaskId) {
        self.call("task_init", |policy, cx| policy.task_init(cx, task));
    }

    /// Returns the CPU whose queue receives a new or woken task; `home` is where it was created or last ran. The policy
    /// is asked only if there is a choice.
    #[inline]
    pub fn place(&self, task: TaskId, home: CpuId) -> CpuId {
        let cpus = self.cx.topology().len();
        if P::MODEL == Model::Central || cpus == 1 {
            return home;
        }
        let cpu = self.call("place", |policy, cx| policy.place(cx, task, home));
        if cpu.index() >= cpus {
            self.broke(Rule::NoSuchCpu { call: "place", cpu });
        }
        cpu
    }

    /// Calls the policy; its panic goes through [`Hook::panicked`].
    #[inline(always)]
    fn call<R>(&self, name: &'static str, f: impl FnOnce(&P, &Cx<'a, P::Task>) -> R) -> R {
        let guard = Guard::<P, H> { hook: &self.hook, call: name, policy: self.policy };
        let result = f(self.policy, &self.cx);
        mem::forget(guard);
        result
    }

    #[cold]
    fn broke(&self, rule: Rule) -> ! {
        self.hook.broke(P::NAME, rule)
    }
}

/// Dropped only if the policy panics.
struct Guard<'a, P: Policy, H: Hook> {
    hook: &'a H,
    call: &'static str,
    policy: &'a P,
}

impl<P: Policy, H: Hook> Drop for Guard<'_, P, H> {
    #[cold]
    fn drop(&mut self) {
        let _ = self.policy;
        self.hook.panicked(P::NAME, self.call);
    }
}
