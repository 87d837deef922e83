//! A core that hands out the tasks of a central policy, one step at a time.

use super::{DISPATCHER, Engine};
use crate::costs::Dispatcher;
use heddle_core::driver::Proposal;
use heddle_core::{CpuId, CpuSet, Enqueue, Ns, Policy, TaskId};
use std::collections::VecDeque;

/// The work queued for the dispatcher.
#[derive(Debug)]
pub(super) struct DispatcherState {
    costs: Dispatcher,
    /// What it is busy with.
    doing: Option<Step>,
    /// Requests that it has not yet admitted.
    incoming: VecDeque<(TaskId, Enqueue)>,
    /// CPUs that are free without its knowing yet.
    freed: VecDeque<CpuId>,
    /// CPUs to be notified to preempt.
    due: VecDeque<(CpuId, u64)>,
    /// CPUs that wait for a task.
    waiting: CpuSet,
    /// Tasks handed out in one round of the policy.
    assigned: Vec<(CpuId, Proposal<TaskId>)>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit(TaskId, Enqueue),
    Notice(CpuId),
    Send(CpuId, u64),
    /// Tasks are being handed out; their CPUs have been notified one by one.
    HandOut,
}

impl DispatcherState {
    pub fn new(costs: Dispatcher, cpus: usize) -> DispatcherState {
        DispatcherState {
            costs,
            doing: None,
            incoming: VecDeque::new(),
            freed: VecDeque::new(),
            due: VecDeque::new(),
            waiting: CpuSet::first(cpus),
            assigned: Vec::new(),
        }
    }

    pub fn push_incoming(&mut self, task: TaskId, why: Enqueue) {
        self.incoming.push_back((task, why));
    }

    /// Returns how many CPUs are free or about to be noticed as free.
    pub fn free(&self) -> usize {
        self.waiting.len() + self.freed.len()
    }

    pub fn push_message(&mut self, (cpu, run): (CpuId, u64)) {
        self.due.push_back((cpu, run));
    }
}

impl<P: Policy> Engine<'_, P> {
    /// `cpu` has become free and reports it.
    pub(super) fn dispatcher_freed(&mut self, cpu: CpuId) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.freed.push_back(cpu);
        }
        self.schedule(cpu);
        self.dispatcher_step();
    }

    /// The dispatcher has finished its current step.
    pub(super) fn dispatcher_done(&mut self) {
        self.timetable.set(DISPATCHER, Ns::MAX);
        if let Some(step) = self.dispatcher.as_mut().and_then(|dispatcher| dispatcher.doing.take())
        {
            self.effect(step);
        }
        self.dispatcher_step();
    }

    /// Starts the next step, until one takes time: messages first, because they shorten waits; then
    /// freed CPUs; then handing out; new requests last, since admitting what cannot run is of no use.
    pub(super) fn dispatcher_step(&mut self) {
        while let Some((step, cost)) = self.next_step() {
            if let Some(dispatcher) = self.dispatcher.as_mut().filter(|_| cost > Ns::ZERO) {
                dispatcher.doing = Some(step);
                self.timetable.set(DISPATCHER, self.view.now + cost);
                return;
            }
            self.effect(step);
        }
    }

    fn next_step(&mut self) -> Option<(Step, Ns)> {
        let send = self.preemption.send;
        let dispatcher =
            self.dispatcher.as_mut().filter(|dispatcher| dispatcher.doing.is_none())?;
        if let Some((cpu, run)) = dispatcher.due.pop_front() {
            return Some((Step::Send(cpu, run), send));
        }
        if let Some(cpu) = dispatcher.freed.pop_front() {
            return Some((Step::Notice(cpu), dispatcher.costs.notice));
        }
        let can_hand_out = !dispatcher.waiting.is_empty() && self.view.waiting(0) > 0;
        if let Some(cost) = can_hand_out.then(|| self.hand_out()).flatten() {
            return Some((Step::HandOut, cost));
        }
        let dispatcher = self.dispatcher.as_mut()?;
        let (task, why) = dispatcher.incoming.pop_front()?;
        Some((Step::Admit(task, why), dispatcher.costs.admit))
    }

    fn effect(&mut self, step: Step) {
        match step {
            Step::Admit(task, why) => self.admit(task, why),
            Step::Notice(cpu) => {
                self.view.set_idle(cpu, true);
                if let Some(dispatcher) = &mut self.dispatcher {
                    dispatcher.waiting.insert(cpu);
                }
            }
            Step::Send(cpu, run) if self.is_current((cpu, run)) => self.send_message((cpu, run)),
            Step::Send(..) | Step::HandOut => {}
        }
    }

    /// Lets the policy hand out tasks; returns how long the dispatcher is busy with it, if it handed
    /// out any. The CPUs get their tasks one after the other.
    fn hand_out(&mut self) -> Option<Ns> {
        let dispatcher = self.dispatcher.as_mut()?;
        let Dispatcher { dispatch, handoff, .. } = dispatcher.costs;
        let (idle, mut given) = (dispatcher.waiting, std::mem::take(&mut dispatcher.assigned));
        self.on(CpuId(0)).poll(idle, |cpu, task| given.push((cpu, task)));
        let count = given.len() as u64;
        for (i, (cpu, task)) in given.drain(..).enumerate() {
            self.dispatcher.as_mut()?.waiting.remove(cpu);
            let at = self.view.now + dispatch * (i as u64 + 1) + handoff;
            self.start(cpu, task, at, Ns::ZERO);
        }
        self.dispatcher.as_mut()?.assigned = given;
        (count > 0).then_some(dispatch * count)
    }
}
