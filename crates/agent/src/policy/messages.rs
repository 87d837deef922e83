//! Messages, and the policy calls that follow from them.

use super::Scheduler;
use super::cpus::Stage;
use super::thread::{KernelState, PolicyState, Thread};
use crate::model::{Kind, Message, State};
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, TaskAttrs, TaskId};

impl<P: Policy> Scheduler<'_, P> {
    /// Handles a message about a thread.
    pub(super) fn handle_message(&mut self, message: &Message) {
        let task = message.thread;
        let Some(known) = self.threads.get(task.index()).copied() else { return };
        let is_same = known.tid == message.tid && known.kernel_state() != KernelState::Gone;
        self.view.touch(known.home);
        match message.kind {
            _ if is_same && message.tseq <= known.tseq => self.tally.counts.old_messages += 1,
            Kind::ThreadCreated => self.created(message),
            // The end of an earlier thread of this slot, or a message about a thread that the agent does not
            // know.
            _ if !is_same => self.resync(task),
            _ => {
                self.thread(task).tseq = message.tseq;
                self.changed(message);
                self.retry_assignment(task);
            }
        }
    }

    fn created(&mut self, message: &Message) {
        let task = message.thread;
        let word = self.backend.thread(task);
        if word.tid != message.tid {
            // The thread is gone again, and its slot belongs to another, whose own message follows.
            return self.resync(task);
        }
        self.reuse_slot(task, message.tid, message.tseq);
        match message.info {
            0 => self.blocked(task),
            _ => self.runnable(task, Enqueue::New, message.at),
        }
    }

    fn changed(&mut self, message: &Message) {
        let (task, at) = (message.thread, message.at);
        match message.kind {
            Kind::ThreadWakeup => self.runnable(task, Enqueue::Wakeup, at),
            Kind::ThreadPreempted => self.runnable(task, Enqueue::Preempted, at),
            Kind::ThreadYield => self.runnable(task, Enqueue::Yield, at),
            Kind::ThreadBlocked => self.blocked(task),
            Kind::ThreadDead | Kind::ThreadDeparted => self.gone(task),
            Kind::ThreadTaken => {
                if let Some(cpu) = self.cpu_of(message.os_cpu) {
                    self.running(task, cpu, State::OnCpu);
                }
            }
            Kind::ThreadAffinity => self.affinity_changed(task),
            _ => {}
        }
    }

    /// A message about `task` has come: a failed commit that waited for it can be tried again.
    pub(super) fn retry_assignment(&mut self, task: TaskId) {
        let known = self.threads[task.index()];
        let stage = self.cpus[known.home.index()].stage();
        if known.is_assigned()
            && known.kernel_state() == KernelState::Parked
            && stage == Stage::Awaiting
        {
            self.set_stage(known.home, Stage::Chosen);
        }
    }

    /// The slot of `task` belongs to the thread `tid` from now on.
    pub(super) fn reuse_slot(&mut self, task: TaskId, tid: u32, tseq: crate::model::Seq) {
        if self.threads[task.index()].kernel_state() != KernelState::Gone {
            self.gone(task);
        }
        let known = self.thread(task);
        known.is_reused = known.policy_state() == PolicyState::Queued;
        known.set_kernel_state(KernelState::Blocked);
        (known.tid, known.tseq) = (tid, tseq);
    }

    /// Introduces a thread to the policy.
    pub(super) fn init(&mut self, task: TaskId) {
        let class = self.classify(task);
        self.slots[task.index()].set_attrs(TaskAttrs { class, ..TaskAttrs::default() });
        let home = self.home_of(task);
        self.thread(task).home = home;
        self.driver(home).init(task);
        self.thread(task).set_policy_state(PolicyState::Asleep);
    }

    fn classify(&mut self, task: TaskId) -> heddle_core::Class {
        let word = self.backend.thread(task);
        let class = self.classes.class_of(task, &word);
        self.thread(task).class = class.0;
        class
    }

    /// Classifies the thread again, as its class may change with its work. Only for threads outside of
    /// queues: policies keep queues by class.
    pub(super) fn reclassify(&mut self, task: TaskId) {
        let class = self.classify(task);
        let slot = &self.slots[task.index()];
        slot.set_attrs(TaskAttrs { class, ..slot.attrs() });
    }

    /// Returns the CPU on which the kernel had the thread last, if that is one of ours.
    fn home_of(&self, task: TaskId) -> CpuId {
        let os_cpu = self.backend.thread(task).os_cpu;
        self.cpu_of(os_cpu).unwrap_or(CpuId((task.index() % self.cpus.len()) as u16))
    }

    pub(super) fn cpu_of(&self, os_cpu: u32) -> Option<CpuId> {
        self.by_os_id.get(os_cpu as usize).copied().flatten()
    }

    /// `task` can run.
    pub(super) fn runnable(&mut self, task: TaskId, why: Enqueue, since: Ns) {
        let known = *self.thread(task);
        self.thread(task).set_kernel_state(KernelState::Parked);
        match known.policy_state() {
            PolicyState::Unknown => self.admit_new(task, since),
            PolicyState::Asleep => self.admit(task, Enqueue::Wakeup, since),
            // The policy takes it for runnable already.
            PolicyState::Queued | PolicyState::Deferred => {}
            PolicyState::Dispatched | PolicyState::DispatchedDeferred
                if !self.was_committed(&known) => {}
            PolicyState::Dispatched => {
                self.leave_cpu(task);
                match why {
                    Enqueue::Wakeup | Enqueue::New => {
                        self.report_blocked(task);
                        self.admit(task, Enqueue::Wakeup, since);
                    }
                    _ => self.enqueue(known.home, task, why),
                }
            }
            PolicyState::DispatchedDeferred => {
                self.leave_cpu(task);
                self.thread(task).set_policy_state(PolicyState::Asleep);
                self.admit(task, Enqueue::Wakeup, Ns::ZERO);
            }
        }
    }

    /// Whether the thread was committed to the CPU that it is assigned to.
    fn was_committed(&self, known: &Thread) -> bool {
        self.cpus[known.home.index()].stage() == Stage::Committed
    }

    /// `task` sleeps.
    pub(super) fn blocked(&mut self, task: TaskId) {
        let known = *self.thread(task);
        self.thread(task).set_kernel_state(KernelState::Blocked);
        match known.policy_state() {
            PolicyState::Unknown => self.init(task),
            PolicyState::Asleep | PolicyState::Queued => {}
            PolicyState::Deferred => self.remove_deferred(task),
            PolicyState::Dispatched => {
                self.leave_cpu(task);
                self.report_blocked(task);
            }
            PolicyState::DispatchedDeferred => {
                self.leave_cpu(task);
                self.thread(task).set_policy_state(PolicyState::Asleep);
            }
        }
    }

    /// The thread `task` no longer exists.
    pub(super) fn gone(&mut self, task: TaskId) {
        let known = *self.thread(task);
        self.thread(task).set_kernel_state(KernelState::Gone);
        match known.policy_state() {
            // A policy has no "remove": the thread is reported as ended when it is proposed.
            PolicyState::Unknown | PolicyState::Queued => return,
            PolicyState::Asleep => {}
            PolicyState::Deferred => self.remove_deferred(task),
            PolicyState::Dispatched | PolicyState::DispatchedDeferred => self.leave_cpu(task),
        }
        self.report_exit(task);
    }

    /// Ends the assignment of `task`.
    fn leave_cpu(&mut self, task: TaskId) {
        let known = *self.thread(task);
        if self.was_committed(&known) {
            self.record_delay(task);
        }
        self.vacate(known.home);
    }

    /// Records the time from the wakeup to the CPU, by the status word.
    fn record_delay(&mut self, task: TaskId) {
        let known = *self.thread(task);
        if known.woken_at == Ns::ZERO {
            return;
        }
        let on_at = self.backend.thread(task).on_at.min(self.view.now);
        if on_at >= known.woken_at {
            self.tally.delay(known.class, on_at - known.woken_at);
            self.thread(task).woken_at = Ns::ZERO;
        }
    }

    pub(super) fn report_blocked(&mut self, task: TaskId) {
        let home = self.threads[task.index()].home;
        self.on(home).block(task);
        self.thread(task).set_policy_state(PolicyState::Asleep);
    }

    pub(super) fn report_exit(&mut self, task: TaskId) {
        let home = self.threads[task.index()].home;
        self.on(home).exit(task);
        self.thread(task).set_policy_state(PolicyState::Unknown);
    }

    pub(super) fn admit_new(&mut self, task: TaskId, since: Ns) {
        self.init(task);
        self.admit(task, Enqueue::New, since);
    }

    /// Places and queues a thread that is new or was woken.
    pub(super) fn admit(&mut self, task: TaskId, why: Enqueue, since: Ns) {
        if why == Enqueue::Wakeup {
            self.reclassify(task);
        }
        let home = self.threads[task.index()].home;
        let cpu = match P::MODEL == Model::PerCpu && self.cpus.len() > 1 {
            true => self.allowed_near(task, self.driver(home).place(task, home)),
            false => home,
        };
        self.thread(task).woken_at = since;
        self.enqueue(cpu, task, why);
        self.reserve(cpu);
        if P::PREEMPTS && self.woken.len() < self.woken.capacity() {
            self.woken.push(task);
        }
    }

    /// Puts `task` into the queue of `cpu`.
    pub(super) fn enqueue(&mut self, cpu: CpuId, task: TaskId, why: Enqueue) {
        if matches!(why, Enqueue::Preempted | Enqueue::Yield) {
            self.reclassify(task);
        }
        let known = self.thread(task);
        known.set_policy_state(PolicyState::Queued);
        known.home = cpu;
        self.slots[task.index()].host.set(Self::queue_of(cpu) as u64 + 1);
        self.on(cpu).enqueue(task, why);
        self.check_if_overdue(cpu);
        self.route(task, cpu);
    }
}
