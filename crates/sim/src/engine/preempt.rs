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
    /// Whom it is sending.
    sending: Option<(CpuId, u64)>,
}

impl<P: Policy> Engine<'_, P> {
    /// The quantum of the task on `cpu` is over: asks the policy, unless nothing waits and that can be seen.
    pub(super) fn check_quantum(&mut self, cpu: CpuId) {
        let queue = Self::queue_of(cpu);
        let waits = self.has_unclaimed_task(queue);
        let local = self.preemption.by == PreemptionSource::LocalTimer;
        if !waits && self.preemption.skip {
            self.cpus[cpu.index()].check_at = Ns::MAX;
            self.overdue.insert(cpu);
            return;
        }
        let (now, began) = (self.view.now, self.cpus[cpu.index()].began);
        let task = self.cpus[cpu.index()].task.expect("only a CPU with a task is looked at");
        let answer = self.on(cpu).tick(task, now - began);
        let next = match answer {
            Resched::Now if waits || !self.preemption.skip && !local => {
                return self.request_preemption(cpu);
            }
            // A timer of its own fires again after a quantum, whatever the policy says.
            Resched::Now => self.first_check(now),
            Resched::After(time) => now + time,
            Resched::Never if local => self.first_check(now),
            Resched::Never => Ns::MAX,
        };
        self.cpus[cpu.index()].check_at = next;
        if local {
            self.interrupt(cpu);
        }
        self.schedule(cpu);
    }

    /// Whether a task waits for which nobody was told to make way, and which no CPU that is free will have from the dispatcher.
    pub(super) fn has_unclaimed_task(&self, queue: usize) -> bool {
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
        if state.check_at != Ns::MAX {
            state.check_at += receive;
        }
        self.counts.interrupts += 1;
    }

    /// Has `cpu` told to preempt what it runs.
    pub(super) fn request_preemption(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        if state.asked || state.task.is_none() || self.preemption.by == PreemptionSource::Disabled {
            return;
        }
        state.asked = true;
        state.check_at = Ns::MAX;
        let message = (cpu, state.run);
        self.claims[Self::queue_of(cpu)] += 1;
        self.overdue.remove(cpu);
        match (self.preemption.by, &mut self.dispatcher) {
            (PreemptionSource::Dispatcher, Some(dispatcher)) => {
                dispatcher.push_message(message);
                self.dispatcher_step();
            }
            (PreemptionSource::LocalTimer, _) => self.send_message(message),
            _ => {
                self.timer.due.push_back(message);
                self.timer_step();
            }
        }
        self.schedule(cpu);
    }

    /// The timer core begins with the next message, passing over CPUs that meanwhile run something else.
    fn timer_step(&mut self) {
        while self.timer.sending.is_none() {
            let Some(message) = self.timer.due.pop_front() else { return };
            if self.is_current(message) {
                self.timer.sending = Some(message);
                self.timetable.set(TIMER, self.view.now + self.preemption.send);
            }
        }
    }

    pub(super) fn timer_sent(&mut self) {
        self.timetable.set(TIMER, Ns::MAX);
        if let Some(message) = self.timer.sending.take() {
            self.send_message(message);
        }
        self.timer_step();
    }

    /// A message is on its way, and arrives after the time that delivery takes.
    pub(super) fn send_message(&mut self, (cpu, run): (CpuId, u64)) {
        let state = &mut self.cpus[cpu.index()];
        state.message_at = self.view.now + self.preemption.deliver;
        state.message_run = run;
        self.schedule(cpu);
    }

    /// Whether the dispatch that a message is meant for still goes on.
    pub(super) fn is_current(&self, (cpu, run): (CpuId, u64)) -> bool {
        let state = &self.cpus[cpu.index()];
        state.task.is_some() && state.run == run
    }

    /// A message arrives. One that comes amid a switch or another message is held until that is over; one that comes too
    /// late interrupts whatever runs now.
    pub(super) fn receive_message(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        if state.task.is_some() && self.view.now < state.resumes {
            state.message_at = state.resumes;
            return;
        }
        state.message_at = Ns::MAX;
        let message = (cpu, state.message_run);
        match self.is_current(message) {
            true => self.preempt(cpu),
            false if self.cpus[cpu.index()].task.is_some() => self.interrupt(cpu),
            false => {}
        }
    }
}
