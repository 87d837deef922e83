//! The agent as a hook of the driver.

use super::Scheduler;
use super::view::View;
use heddle_core::driver::{Driver, Hook, OwnedQueues, Proposal, Rule, RunQueue, SearchResult};
use heddle_core::{CpuId, Cx, Event, EventKind, Host, Layer, Model, Ns, Policy, TaskId, TaskSlot};
use std::cell::RefCell;

/// A log of what threads do, step by step, if recording is on.
#[derive(Default)]
pub(super) struct Recorder(Option<RefCell<Vec<Event>>>);

impl Recorder {
    /// Starts recording, without bound: for tests and models.
    pub fn start(&mut self) {
        self.0 = Some(RefCell::default());
    }

    /// Stops recording and returns the events.
    pub fn stop(&mut self) -> Vec<Event> {
        self.0.take().map_or_else(Vec::new, RefCell::into_inner)
    }

    fn note(&self, at: Ns, cpu: CpuId, task: TaskId, kind: EventKind) {
        if let Some(events) = &self.0 {
            events.borrow_mut().push(Event::task(at, cpu, task.0, kind).of(Layer::Agent));
        }
    }
}

/// The agent as the hook of one call for `queue`.
pub(super) struct Call<'a, T> {
    view: &'a View,
    slots: &'a [TaskSlot<T>],
    recorder: &'a Recorder,
    queue: usize,
}

impl<T> Hook for Call<'_, T> {
    type Claimed = TaskId;

    fn publish(&self, len: usize) {
        self.view.set_waiting(self.queue, len);
    }

    /// The slot's hook word holds the queue in which the thread waits, plus one.
    fn claim(&self, task: TaskId) -> Option<TaskId> {
        let slot = self.slots.get(task.index())?;
        let waits = slot.host.get() == self.queue as u64 + 1;
        slot.host.set(0);
        waits.then_some(task)
    }

    fn record(&self, cpu: CpuId, task: TaskId, kind: EventKind) {
        self.recorder.note(self.view.now, cpu, task, kind);
    }

    /// The agent ends; its threads go on under the default scheduler or the next agent.
    fn broke(&self, policy: &'static str, rule: Rule) -> ! {
        panic!("policy `{policy}`: {rule}; this is a fault in the policy")
    }
}

impl<P: Policy> Scheduler<'_, P> {
    pub(super) fn queue_of(cpu: CpuId) -> usize {
        if P::MODEL == Model::Central { 0 } else { cpu.index() }
    }

    /// Returns the driver for a call for `cpu`.
    pub(super) fn driver(&self, cpu: CpuId) -> Driver<'_, P, Call<'_, P::Task>> {
        let (view, recorder) = (&self.view, &self.recorder);
        let call = Call { view, slots: &self.slots, recorder, queue: Self::queue_of(cpu) };
        Driver::new(&self.policy, Cx::new(cpu, &self.slots, view, &self.rng), call)
    }

    /// Returns the queue of `cpu`, in a call for that CPU.
    pub(super) fn on(&mut self, cpu: CpuId) -> RunQueue<'_, P, Call<'_, P::Task>> {
        self.queue_for(cpu, cpu)
    }

    /// Returns the queue of `owner`, in a call for `cpu`.
    pub(super) fn queue_for(
        &mut self,
        owner: CpuId,
        cpu: CpuId,
    ) -> RunQueue<'_, P, Call<'_, P::Task>> {
        let (view, queue) = (&self.view, Self::queue_of(owner));
        let call = Call { view, slots: &self.slots, recorder: &self.recorder, queue };
        let cx = Cx::new(cpu, &self.slots, view, &self.rng);
        Driver::new(&self.policy, cx, call).on(&mut self.queues[queue])
    }

    /// Searches the queues of others for `cpu`, whose own queue is empty.
    pub(super) fn search(&mut self, cpu: CpuId) -> SearchResult<TaskId> {
        let Scheduler { policy, queues, view, slots, rng, recorder, .. } = self;
        let (view, slots, recorder) = (&*view, &**slots, &*recorder);
        let call = |cpu: CpuId| Call { view, slots, recorder, queue: cpu.index() };
        let cx = Cx::new(cpu, slots, view, rng);
        Driver::new(&*policy, cx, call(cpu)).search(&mut OwnedQueues::new(policy, cx, queues, call))
    }

    /// `task` runs on `cpu` from now on, as proposed.
    pub(super) fn begin_turn(&self, cpu: CpuId, task: TaskId) {
        if P::USES_EXPECTED_WAIT {
            self.view.turns(cpu).begin(self.view.now, 1);
        }
        self.recorder.note(self.view.now, cpu, task, EventKind::Start);
    }

    /// The thread on `cpu`, if there was one, has left it.
    pub(super) fn end_turn(&self, cpu: CpuId) {
        if P::USES_EXPECTED_WAIT {
            self.view.turns(cpu).end(self.view.now);
        }
    }

    /// Takes the next thread that the policy proposes for `cpu`.
    pub(super) fn next(&mut self, cpu: CpuId) -> Option<TaskId> {
        self.on(cpu).dequeue().map(Proposal::withdraw)
    }
}
