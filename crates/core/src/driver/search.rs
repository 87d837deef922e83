//! A CPU without work searches the queues of others.

use super::{Driver, Hook, Proposal, Rule, RunQueue};
use crate::{Balance, CpuId, Cx, Model, Ns, Policy};

/// How often one search asks `balance`, for each CPU: enough for a policy that visits every queue twice, at random.
pub const ATTEMPTS: usize = 8;

/// The most tasks that a search takes, whatever [`Policy::steal_limit`] returns.
pub const STEAL_LIMIT: usize = 8;

/// How a hook reaches another CPU's queue: it owns all queues, or locks the one in question.
pub trait Victims<P: Policy> {
    /// The driver hook that a queue is presented with.
    type Hook: Hook;

    /// Passes the queue of `victim` to `take`, for the CPU that searches. Returns `None` if the queue is in use and the
    /// hook does not wait for it; the search then moves on to the next.
    fn reach<R>(
        &mut self,
        victim: CpuId,
        take: impl FnOnce(&mut RunQueue<'_, P, Self::Hook>) -> R,
    ) -> Option<R>;
}

/// The victims of a hook that owns all queues and locks none.
pub struct OwnedQueues<'a, P: Policy, F> {
    policy: &'a P,
    cx: Cx<'a, P::Task>,
    queues: &'a mut [P::Queue],
    hook: F,
}

impl<'a, P: Policy, F> OwnedQueues<'a, P, F> {
    /// Returns the victims for a search of `cx.cpu`. `queues` are in CPU order; `hook` makes the hook of a call about
    /// the queue of its argument.
    pub fn new(policy: &'a P, cx: Cx<'a, P::Task>, queues: &'a mut [P::Queue], hook: F) -> Self {
        OwnedQueues { policy, cx, queues, hook }
    }
}

impl<P: Policy, H: Hook, F: FnMut(CpuId) -> H> Victims<P> for OwnedQueues<'_, P, F> {
    type Hook = H;

    fn reach<R>(
        &mut self,
        victim: CpuId,
        take: impl FnOnce(&mut RunQueue<'_, P, H>) -> R,
    ) -> Option<R> {
        let driver = Driver::new(self.policy, self.cx, (self.hook)(victim));
        Some(take(&mut driver.on(&mut self.queues[victim.index()])))
    }
}

/// The result of a search.
#[must_use]
pub enum SearchResult<C: Copy> {
    /// These tasks: the first runs, the others wait in the searching CPU's queue.
    Tasks(Stolen<C>),
    /// None; search again after this long, unless something happens before.
    Later(Ns),
    /// None, and no reason to search again until something happens.
    Nothing,
}

impl<P: Policy, H: Hook> Driver<'_, P, H> {
    /// Takes tasks from the queues that the policy names, one after another, until one has any.
    pub fn search<V: Victims<P>>(
        &self,
        victims: &mut V,
    ) -> SearchResult<<V::Hook as Hook>::Claimed> {
        let cpus = self.cx.topology().len();
        if P::MODEL == Model::Central || !P::BALANCES || cpus == 1 {
            return SearchResult::Nothing;
        }
        let limit = self.policy.steal_limit();
        for attempt in 0..ATTEMPTS * cpus {
            let victim = match self.call("balance", |policy, cx| policy.balance(cx, attempt)) {
                Balance::From(victim) => victim,
                Balance::Later(Ns::ZERO) => self.broke(Rule::NoDelay),
                Balance::Later(time) => return SearchResult::Later(time),
                Balance::Nowhere => return SearchResult::Nothing,
            };
            if victim == self.cx.cpu || victim.index() >= cpus {
                self.broke(Rule::NoVictim(victim));
            }
            if let Some(stolen) = victims.reach(victim, |queue| queue.steal(victim, limit))
                && let Some(stolen) = stolen.not_empty()
            {
                return SearchResult::Tasks(stolen);
            }
        }
        SearchResult::Nothing
    }
}

/// Proposals from one queue, in order. Like a single proposal, it must not be dropped while it holds any.
#[must_use]
pub struct Stolen<C: Copy> {
    tasks: [Option<Proposal<C>>; STEAL_LIMIT],
    len: usize,
}

impl<C: Copy> Stolen<C> {
    pub(super) fn new() -> Self {
        Stolen { tasks: [const { None }; STEAL_LIMIT], len: 0 }
    }

    pub(super) fn push(&mut self, task: Proposal<C>) {
        self.tasks[self.len] = Some(task);
        self.len += 1;
    }

    fn not_empty(self) -> Option<Self> {
        (self.len > 0).then_some(self)
    }

    /// Returns their number: at least one in [`SearchResult::Tasks`].
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl<C: Copy> IntoIterator for Stolen<C> {
    type Item = Proposal<C>;
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Proposal<C>>, STEAL_LIMIT>>;

    fn into_iter(self) -> Self::IntoIter {
        self.tasks.into_iter().flatten()
    }
}
