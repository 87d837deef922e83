//! Choosing a thread for each CPU.

use super::cpus::Stage;
use super::thread::{KernelState, PolicyState};
use super::{PATIENCE, Scheduler};
use crate::model::{CpuOccupant, State};
use heddle_core::driver::{Proposal, SearchResult, Stolen};
use heddle_core::{CpuId, CpuSet, Enqueue, Model, Ns, Policy, TaskId};

/// How many unusable proposals (asleep, gone, not allowed) to drop for one CPU.
const DROPS: usize = 256;

/// How often to look whether a CPU is online again while threads wait.
const OFFLINE_CHECK: Ns = Ns::from_ms(100);

/// Whether a CPU without an assignment can take a thread.
enum Availability {
    /// A thread would run at once.
    Idle,
    /// Something above managed threads runs there: a thread would wait behind it.
    Occupied,
    /// Offline, the agent's own, or not free although we think so.
    Barred,
}

impl<P: Policy> Scheduler<'_, P> {
    /// Assigns a waiting thread to every free CPU: idle CPUs first, then occupied ones.
    pub(super) fn fill(&mut self, scope: Option<CpuId>) {
        let mut held = CpuSet::EMPTY;
        let free = self.free;
        for cpu in free.iter() {
            let availability = self.availability(cpu);
            if let (Availability::Idle, Some(until)) = (&availability, self.taking_until(cpu)) {
                self.view.set_idle(cpu, false);
                self.retry_at = self.retry_at.min(until);
                continue;
            }
            self.view.set_idle(cpu, matches!(availability, Availability::Idle));
            if matches!(availability, Availability::Occupied) {
                held.insert(cpu);
            }
            self.update_barred(cpu);
            if matches!(availability, Availability::Barred) && !self.barred.contains(cpu) {
                // A message about the occupant must be on its way. If it is not, we look again.
                self.retry_at = self.retry_at.min(self.view.now + PATIENCE);
            }
        }
        self.serve(self.in_scope(scope, &self.view.idle()));
        let held = self.in_scope(scope, &held);
        self.serve(held);
        for cpu in held.iter().filter(|&cpu| self.cpus[cpu.index()].task.is_some()) {
            self.behind.insert(cpu);
        }
        let mut offline = self.barred;
        self.own.into_iter().for_each(|own| offline.remove(own));
        if !offline.is_empty() && self.has_waiting() {
            // Nothing says that a CPU is online again.
            self.retry_at = self.retry_at.min(self.view.now + OFFLINE_CHECK);
        }
    }

    /// Whether a thread waits for a CPU.
    pub(super) fn has_waiting(&self) -> bool {
        self.view.total() > 0 || !self.deferred.is_empty()
    }

    fn serve(&mut self, cpus: CpuSet) {
        if cpus.is_empty() || !self.has_waiting() {
            return;
        }
        if P::MODEL == Model::Central {
            return self.poll(cpus);
        }
        // CPUs with threads of their own come first, so that no other CPU steals those.
        for at_hand in [true, false] {
            for cpu in cpus.iter() {
                if !at_hand || self.view.waiting(cpu.index()) > 0 {
                    self.pick(cpu);
                }
            }
        }
    }

    fn availability(&self, cpu: CpuId) -> Availability {
        let word = self.backend.cpu(cpu);
        if !word.online || self.own == Some(cpu) || !self.is_vacant(cpu, &word) {
            return Availability::Barred;
        }
        let below = self.backend.traits().below_ordinary;
        match word.occupant {
            CpuOccupant::Realtime => Availability::Occupied,
            CpuOccupant::Ordinary if below => Availability::Occupied,
            // An agent that sleeps between its rounds is gone before the thread arrives.
            _ => Availability::Idle,
        }
    }

    /// Whether `cpu` has no managed thread, or only one that was told to leave. A backend that does not
    /// really park shows a thread that runs on after that, with the CPU to itself, as the CPU's current one.
    fn is_vacant(&self, cpu: CpuId, word: &crate::model::CpuWord) -> bool {
        let leaves = |task: TaskId| {
            // The word may name a slot that is not in use.
            let known = self.threads.get(task.index());
            let was_sent_off = known.is_some_and(|known| {
                known.kernel_state() == KernelState::Leaving && known.on == cpu
            });
            was_sent_off
                || matches!(self.backend.thread(task).state, State::Blocked | State::Parked)
        };
        word.current.is_none_or(leaves) && word.latched.is_none_or(leaves)
    }

    pub(super) fn is_idle(&self, cpu: CpuId) -> bool {
        matches!(self.availability(cpu), Availability::Idle)
    }

    /// Updates whether `cpu` runs threads at all; it does not while it is offline or the agent spins on it.
    fn update_barred(&mut self, cpu: CpuId) {
        if self.own != Some(cpu) && self.backend.cpu(cpu).online {
            return self.barred.remove(cpu);
        }
        self.barred.insert(cpu);
        if P::MODEL == Model::PerCpu && self.view.waiting(cpu.index()) > 0 {
            self.evacuate(cpu);
        }
    }

    /// Moves the threads that wait for `cpu`, which runs none, to CPUs that they may use. To the policy each
    /// of them ran and slept: it has no other way from one queue to another.
    fn evacuate(&mut self, cpu: CpuId) {
        for _ in 0..self.view.waiting(cpu.index()) {
            let Some(task) = self.next(cpu) else { return };
            self.thread(task).set_policy_state(PolicyState::Dispatched);
            self.report_blocked(task);
            let to = self.allowed_near(task, cpu);
            self.enqueue(to, task, Enqueue::Wakeup);
        }
    }

    /// Central model: the policy's dispatcher decides which CPU gets which thread.
    fn poll(&mut self, mut cpus: CpuSet) {
        let asked = if self.deferred.is_empty() { CpuSet::EMPTY } else { cpus };
        for cpu in asked.iter().filter(|&cpu| self.pick_deferred(cpu)) {
            cpus.remove(cpu);
        }
        let mut dropped = 0;
        while !cpus.is_empty() && self.view.total() > 0 && dropped < DROPS {
            let mut assigned = std::mem::take(&mut self.assigned);
            assigned.clear();
            let first = cpus.next_from(CpuId(0)).unwrap_or_default();
            self.on(first).poll(cpus, |cpu, task| assigned.push((cpu, task.withdraw())));
            let seated = assigned.iter().filter(|&&(cpu, task)| self.propose(cpu, task)).count();
            dropped += assigned.len() - seated;
            let is_done = seated == assigned.len();
            self.assigned = assigned;
            if is_done {
                return;
            }
            cpus = cpus.and(&self.free);
        }
    }

    /// A thread waits for `cpu` and gets it in this round if it is idle, so the next one is placed elsewhere.
    pub(super) fn reserve(&mut self, cpu: CpuId) {
        if P::MODEL == Model::PerCpu {
            self.view.set_idle(cpu, false);
        }
    }

    /// Finds a thread for `cpu`: a deferred one, one of its own queue, one of another queue. Returns false if
    /// there is none.
    pub(super) fn pick(&mut self, cpu: CpuId) -> bool {
        // The search for an earlier CPU may have placed a thread here.
        if self.cpus[cpu.index()].task.is_some() || self.pick_deferred(cpu) {
            return true;
        }
        for _ in 0..DROPS {
            let Some(task) = self.next(cpu) else { break };
            if self.propose(cpu, task) {
                return true;
            }
        }
        self.view.total() > 0 && self.steal(cpu)
    }

    fn pick_deferred(&mut self, cpu: CpuId) -> bool {
        let Some(task) = self.take_deferred(cpu) else { return false };
        self.thread(task).set_policy_state(PolicyState::DispatchedDeferred);
        self.assign(cpu, task);
        true
    }

    /// Steals from the queues of CPUs that the policy names until a stolen thread can run here.
    fn steal(&mut self, cpu: CpuId) -> bool {
        for _ in 0..DROPS {
            match self.search(cpu) {
                SearchResult::Tasks(stolen) => {
                    if self.take(cpu, stolen) {
                        return true;
                    }
                }
                SearchResult::Later(time) => {
                    self.retry_at(cpu, self.view.now + time);
                    return false;
                }
                SearchResult::Nothing => return false,
            }
        }
        false
    }

    /// Assigns the first stolen thread that can run to `cpu` and queues the others there. Returns false if
    /// none can run.
    fn take(&mut self, cpu: CpuId, stolen: Stolen<TaskId>) -> bool {
        self.tally.counts.steals += stolen.len() as u64;
        let mut is_taken = false;
        for task in stolen.into_iter().map(Proposal::withdraw) {
            match is_taken {
                true => self.enqueue(cpu, task, Enqueue::Migrated),
                false => is_taken = self.propose(cpu, task),
            }
            self.route(task, cpu);
        }
        is_taken
    }

    /// Handles the policy's proposal of `task` for `cpu`. What the kernel has said of the thread since it was
    /// queued takes effect here. Returns false if the CPU is still free.
    fn propose(&mut self, cpu: CpuId, task: TaskId) -> bool {
        if !self.take_back(task) {
            self.thread(task).set_kernel_state(KernelState::Leaving);
        }
        let known = self.thread(task);
        known.set_policy_state(PolicyState::Dispatched);
        known.home = cpu;
        let known = *known;
        match known.kernel_state() {
            _ if known.is_reused => self.admit_reused(task),
            KernelState::Gone => self.report_exit(task),
            KernelState::Blocked => self.report_blocked(task),
            _ if !self.may_run(task, cpu) => self.defer(task),
            KernelState::Parked
            | KernelState::Offered
            | KernelState::Committed
            | KernelState::Leaving => self.assign(cpu, task),
        }
        // The new thread of a reused slot may have been placed here.
        self.cpus[cpu.index()].task.is_some()
    }

    /// The thread that the policy had in its queue is gone, and its slot belongs to another.
    fn admit_reused(&mut self, task: TaskId) {
        self.thread(task).is_reused = false;
        self.report_exit(task);
        match self.threads[task.index()].kernel_state() {
            KernelState::Gone => {}
            KernelState::Blocked => self.blocked(task),
            _ => self.admit_new(task, self.view.now),
        }
    }

    /// Assigns `cpu` to `task`. A thread that is still there goes on; one whose latest message is unread
    /// waits for that.
    pub(super) fn assign(&mut self, cpu: CpuId, task: TaskId) {
        let known = self.thread(task);
        known.home = cpu;
        let known = *known;
        let stage = match known.kernel_state() {
            KernelState::Committed if known.on == cpu => Stage::Committed,
            KernelState::Parked => Stage::Chosen,
            _ => Stage::Awaiting,
        };
        let mut check_at = Ns::MAX;
        if stage == Stage::Committed {
            check_at = self.first_check();
            self.begin_turn(cpu, task);
        }
        let ran_before = self.total_run(task);
        self.set_stage(cpu, stage);
        let state = self.cpu(cpu);
        (state.task, state.ran_before) = (Some(task), ran_before);
        self.check_at(cpu, check_at);
        self.view.set_idle(cpu, false);
    }

    /// Ends the assignment of `cpu`.
    pub(super) fn vacate(&mut self, cpu: CpuId) {
        self.force_off(cpu);
        self.end_turn(cpu);
        self.cpu(cpu).clear();
        self.set_stage(cpu, Stage::Free);
        self.overdue.remove(cpu);
        self.behind.remove(cpu);
        self.view.set_idle(cpu, self.is_idle(cpu));
    }

    /// Recalls commits that wait behind other occupants if an idle CPU could run their thread.
    pub(super) fn rescue(&mut self, scope: Option<CpuId>) {
        if self.behind.is_empty() {
            return;
        }
        let idle = self.in_scope(scope, &self.view.idle());
        let behind = self.behind;
        for cpu in behind.iter() {
            let word = self.backend.cpu(cpu);
            let Some(task) = self.cpus[cpu.index()].task.filter(|&task| word.latched == Some(task))
            else {
                self.behind.remove(cpu);
                continue;
            };
            let is_better = self.backend.affinity(task).and(&idle);
            if !is_better.is_empty() && self.backend.recall(cpu).is_some() {
                self.tally.counts.recalls += 1;
                self.behind.remove(cpu);
                self.retry_at = self.view.now;
            }
        }
    }

    /// Local agents: sends a thread's messages to the agent of the CPU in whose queue it is. If some are
    /// still unread, messages keep their old queue: any agent handles any message, and the thread's next move
    /// corrects it.
    pub(super) fn route(&mut self, task: TaskId, cpu: CpuId) {
        if self.readers.len() > 1 {
            let _ = self.backend.associate(task, self.readers[cpu.index()].id);
            self.nudged.insert(cpu);
        }
    }

    pub(super) fn requeue(&mut self, task: TaskId, why: Enqueue) {
        let known = self.threads[task.index()];
        self.vacate(known.home);
        match known.policy_state() {
            PolicyState::Dispatched => self.enqueue(known.home, task, why),
            _ => {
                self.deferred.push_back(&self.slots, task);
                self.thread(task).set_policy_state(PolicyState::Deferred);
            }
        }
    }
}
