//! Quanta end, and somebody tells the CPU.

use super::dispatcher::DispatcherState;
use super::{Engine, TIMER};
use crate::costs::PreemptionSource;
use heddle_core::{CpuId, Ns, Policy, Resched};
use std::collections::VecDeque;

/// A core that tells CPUs to preempt, one after the other. It sees the queues and the dispatches of all.
#[derive(Debug, Default)]
pub(super) struct TimerCore {
    /// CPUs to be told, each with the dispatch that is meant.
    due: VecDeque<(CpuId, u64)>,
    /// Whom it is telling.
    telling: Option<(CpuId, u64)>,
}

impl<P: Policy> Engine<'_, P> {
    /// The quantum of the task on `cpu` is over: asks the policy, unless nothing waits and that can be seen.
    pub(super) fn look(&mut self, cpu: CpuId) {
        let queue = Self::queue_of(cpu);
        let waits = self.somebody_waits(queue);
        let local = self.preemption.by == PreemptionSource::LocalTimer;
        if !waits && self.preemption.skip {
            self.cpus[cpu.index()].look = Ns::MAX;
            self.overdue.insert(cpu);
            return;
        }
        let (now, began) = (self.view.now, self.cpus[cpu.index()].began);
        let task = self.cpus[cpu.index()].task.expect("only a CPU with a task is looked at");
        let answer = self.on(cpu).tick(task, now - began);
        let next = match answer {
            Resched::Now if waits || !self.preemption.skip && !local => return self.tell(cpu),
            // A timer of its own fires again after a quantum, whatever the policy says.
            Resched::Now => self.first_look(now),
            Resched::After(time) => now + time,
            Resched::Never if local => self.first_look(now),
            Resched::Never => Ns::MAX,
        };
        self.cpus[cpu.index()].look = next;
        if local {
            self.interrupt(cpu);
        }
        self.schedule(cpu);
    }

    /// Whether a task waits for which nobody was told to make way, and which no CPU that is free will have from the dispatcher.
    pub(super) fn somebody_waits(&self, queue: usize) -> bool {
        let free = self
            .dispatcher
            .as_ref()
            .filter(|_| P::WORK_CONSERVING)
            .map_or(0, DispatcherState::free);
        self.view.waiting(queue) > self.claims[queue] + free
    }

    /// The CPU handles a message that changes nothing: its task is done so much later.
    fn interrupt(&mut self, cpu: CpuId) {
        let (receive, state) = (self.preemption.receive, &mut self.cpus[cpu.index()]);
        state.resumes = state.resumes.max(self.view.now) + receive;
        state.charged += receive;
        state.began += receive;
        state.ends += receive;
        if state.look != Ns::MAX {
            state.look += receive;
        }
        self.counts.interrupts += 1;
    }

    /// Has `cpu` told to preempt what it runs.
    pub(super) fn tell(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        if state.asked || state.task.is_none() || self.preemption.by == PreemptionSource::Nobody {
            return;
        }
        state.asked = true;
        state.look = Ns::MAX;
        let message = (cpu, state.run);
        self.claims[Self::queue_of(cpu)] += 1;
        self.overdue.remove(cpu);
        match (self.preemption.by, &mut self.dispatcher) {
            (PreemptionSource::Dispatcher, Some(dispatcher)) => {
                dispatcher.tell(message);
                self.dispatcher_step();
            }
            (PreemptionSource::LocalTimer, _) => self.arrive_at(message),
            _ => {
                self.timer.due.push_back(message);
                self.timer_step();
            }
        }
        self.schedule(cpu);
    }

    /// The timer core begins with the next message, passing over CPUs that meanwhile run something else.
    fn timer_step(&mut self) {
        while self.timer.telling.is_none() {
            let Some(message) = self.timer.due.pop_front() else { return };
            if self.is_meant(message) {
                self.timer.telling = Some(message);
                self.timetable.set(TIMER, self.view.now + self.preemption.send);
            }
        }
    }

    pub(super) fn timer_sent(&mut self) {
        self.timetable.set(TIMER, Ns::MAX);
        if let Some(message) = self.timer.telling.take() {
            self.arrive_at(message);
        }
        self.timer_step();
    }

    /// A message is on its way, and arrives after the time that delivery takes.
    pub(super) fn arrive_at(&mut self, (cpu, run): (CpuId, u64)) {
        let state = &mut self.cpus[cpu.index()];
        state.told = self.view.now + self.preemption.deliver;
        state.told_run = run;
        self.schedule(cpu);
    }

    /// Whether the dispatch that a message is meant for still goes on.
    pub(super) fn is_meant(&self, (cpu, run): (CpuId, u64)) -> bool {
        let state = &self.cpus[cpu.index()];
        state.task.is_some() && state.run == run
    }

    /// A message arrives. One that comes amid a switch or another message is held until that is over; one that comes too
    /// late interrupts whatever runs now.
    pub(super) fn told(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        if state.task.is_some() && self.view.now < state.resumes {
            state.told = state.resumes;
            return;
        }
        state.told = Ns::MAX;
        let message = (cpu, state.told_run);
        match self.is_meant(message) {
            true => self.preempt(cpu),
            false if self.cpus[cpu.index()].task.is_some() => self.interrupt(cpu),
            false => {}
        }
    }
}
