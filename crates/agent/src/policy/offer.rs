//! The fast path (ghOSt, sections 3.2 and 5): CPUs that have nothing to run take the threads that the policy would give
//! them next, without asking.
//!
//! The threads stay in the policy's queue. At the end of each round, those offered are compared with what the policy
//! says comes next ([`Policy::upcoming`]), one for each CPU that runs a thread. What is no longer next is taken back.
//! When a CPU has taken one, the policy hears of it by [`Policy::remove`].

use super::Scheduler;
use super::thread::{KernelState, PolicyState};
use crate::Takers;
use heddle_core::{Class, CpuId, Model, Ns, Policy, TaskId};

/// The most threads that a `pick_next` chooses from (`HD_OFFERS` in `include/heddle/offers.h`).
const PICKED_FROM: usize = 16;

/// How long a CPU that has become free may need to take an offered thread: then the message that it has done so is on
/// its way.
const TAKING: Ns = Ns::from_us(20);

impl<P: Policy> Scheduler<'_, P> {
    /// Offers the threads that come next, and takes back those that no longer do. Central agents only: a local one
    /// decides on its CPU itself, when that has nothing to run.
    pub(super) fn offer_upcoming(&mut self, scope: Option<CpuId>) {
        if !self.offers || scope.is_some() {
            return;
        }
        match P::MODEL {
            Model::Central => self.offer_in_order(),
            Model::PerCpu => self.offer_to_each(),
        }
    }

    /// Central model: offers the first threads of the queue to the nodes of the busy CPUs.
    fn offer_in_order(&mut self) {
        let mut offered = std::mem::take(&mut self.offered);
        let mut upcoming = std::mem::take(&mut self.upcoming);
        offered.retain(|&(task, _)| self.is_offered(task));
        self.list_upcoming(&mut upcoming);
        // CPUs take them in the order of the offers, so after the first difference all are offered anew.
        let same = offered.iter().zip(&upcoming).take_while(|(a, b)| a == b).count();
        for (task, _) in offered.drain(same..) {
            self.take_back(task);
        }
        let added = upcoming[same..].iter().take_while(|&&(task, takers)| self.offer(task, takers));
        offered.extend(added);
        (self.offered, self.upcoming) = (offered, upcoming);
    }

    fn list_upcoming(&mut self, upcoming: &mut Vec<(TaskId, Takers)>) {
        upcoming.clear();
        // The others have just got all there was.
        let busy = self.running;
        let (Some(first), 1..) = (busy.next_from(CpuId(0)), self.view.total()) else { return };
        // A pick_next is to have a choice, even if a single CPU runs a thread.
        let most = if self.picks { busy.len().max(PICKED_FROM) } else { busy.len() };
        let mut cpus = std::iter::repeat_with(|| busy.iter()).flatten().take(most);
        self.on(first).upcoming(|task| {
            cpus.next().map(|cpu| upcoming.push((task, Takers::Node(cpu)))).is_some()
        });
        // Those after one that cannot be taken wait their turn.
        let most = upcoming.iter().take_while(|&&(task, _)| self.can_be_taken(task)).count();
        upcoming.truncate(most);
    }

    /// Per-CPU model: offers the first thread of each busy CPU's queue to that CPU.
    fn offer_to_each(&mut self) {
        for cpu in self.view.take_touched().iter() {
            let now = self.cpus[cpu.index()].offered.filter(|&task| self.is_offered(task));
            let next = self.first_of(cpu).filter(|_| self.running.contains(cpu));
            self.cpu(cpu).offered = next;
            if now == next {
                continue;
            }
            if let Some(task) = now {
                self.take_back(task);
            }
            if let Some(task) = next {
                self.offer(task, Takers::Cpu(cpu));
            }
        }
    }

    fn first_of(&mut self, cpu: CpuId) -> Option<TaskId> {
        if self.view.waiting(cpu.index()) == 0 {
            return None;
        }
        let mut first = None;
        self.on(cpu).upcoming(|task| {
            first = Some(task);
            false
        });
        first.filter(|&task| self.can_be_taken(task))
    }

    fn is_offered(&self, task: TaskId) -> bool {
        self.threads[task.index()].kernel_state() == KernelState::Offered
    }

    fn can_be_taken(&self, task: TaskId) -> bool {
        let known = &self.threads[task.index()];
        let waits = matches!(known.kernel_state(), KernelState::Parked | KernelState::Offered);
        waits && known.policy_state() == PolicyState::Queued && !known.is_reused
    }

    /// Returns false if a message about `task` is on its way.
    fn offer(&mut self, task: TaskId, takers: Takers) -> bool {
        if self.is_offered(task) && !self.take_back(task) {
            return false;
        }
        if self.picks {
            let hint = self.on(self.threads[task.index()].home).hint(task);
            let class = Class(self.threads[task.index()].class);
            self.backend.describe(task, class, hint);
        }
        let is_made = self.backend.offer(task, self.threads[task.index()].tseq, takers);
        if is_made {
            self.thread(task).set_kernel_state(KernelState::Offered);
        }
        is_made
    }

    /// Takes `task` back if it is offered. Returns false if a CPU has taken it.
    pub(super) fn take_back(&mut self, task: TaskId) -> bool {
        if !self.is_offered(task) {
            return true;
        }
        let is_back = self.backend.revoke(task);
        if is_back {
            self.thread(task).set_kernel_state(KernelState::Parked);
        }
        is_back
    }

    /// Whether `cpu`, free since not long ago, may be about to run an offered thread: then when it should have done so.
    pub(super) fn taking_until(&self, cpu: CpuId) -> Option<Ns> {
        let state = &self.cpus[cpu.index()];
        let until = Some(state.since + TAKING).filter(|&until| until > self.view.now)?;
        let for_it = |&(task, takers): &(TaskId, Takers)| match takers {
            Takers::Node(one) => {
                self.is_offered(task) && self.view.share_node(one, cpu) && self.may_run(task, cpu)
            }
            Takers::Cpu(_) => false,
        };
        let own = state.offered.is_some_and(|task| self.is_offered(task));
        (own || self.offered.iter().any(for_it)).then_some(until)
    }

    /// `cpu` has taken `task`, which was offered and waits in the policy's queue.
    pub(super) fn taken(&mut self, task: TaskId, cpu: CpuId) {
        self.tally.counts.taken += 1;
        let from = self.threads[task.index()].home;
        let removed = self.queue_for(from, cpu).remove(task);
        removed.expect("a policy that publishes lets go of what waits").withdraw();
        let known = self.thread(task);
        known.set_policy_state(PolicyState::Dispatched);
        known.home = cpu;
        self.displace(cpu);
        self.assign(cpu, task);
    }
}
