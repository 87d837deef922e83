//! Preemption: quanta end, and CPUs are notified.

use super::dispatcher::DispatcherState;
use super::{Engine, TIMER};
use crate::costs::PreemptionSource;
use heddle_core::{CpuId, Ns, Policy, Resched};
use std::collections::VecDeque;

/// A core that sends CPUs messages to preempt, one after the other. It sees the queues and dispatches
/// of all CPUs.
#[derive(Debug, Default)]
pub(super) struct TimerCore {
    /// CPUs to be notified, each with the dispatch that is meant.
    due: VecDeque<(CpuId, u64)>,
    /// The message that it is sending.
    sending: Option<(CpuId, u64)>,
}

impl<P: Policy> Engine<'_, P> {
    /// The quantum of the task on `cpu` is over: asks the policy, unless nothing waits and the
    /// mechanism can see that.
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
            // A local timer fires again after a quantum, whatever the policy answers.
            Resched::Now => self.first_check(now),
            Resched::After(time) => now + time,
            Resched::Until(time) if self.preemption.skip && !local => {
                self.overdue.insert(cpu);
                now + time
            }
            Resched::Until(time) => self.first_check(now).min(now + time),
            Resched::Never if local => self.first_check(now),
            Resched::Never => Ns::MAX,
        };
        self.cpus[cpu.index()].check_at = self.noticed(next);
        if local {
            self.interrupt(cpu);
        }
        self.schedule(cpu);
    }

    /// Returns whether a task waits for which no running task was asked to yield and which no free CPU
    /// will get from the dispatcher.
    pub(super) fn has_unclaimed_task(&self, queue: usize) -> bool {
        let free = self
            .dispatcher
            .as_ref()
            .filter(|_| P::WORK_CONSERVING)
            .map_or(0, DispatcherState::free);
        self.view.waiting(queue) > self.claims[queue] + free
    }

    /// The CPU handles a message that changes nothing; its task is delayed by that time.
    fn interrupt(&mut self, cpu: CpuId) {
        let (receive, state) = (self.preemption.receive, &mut self.cpus[cpu.index()]);
        state.resumes = state.resumes.max(self.view.now) + receive;
        state.charged += receive;
        state.began += receive;
        state.ends += receive;
        if state.check_at != Ns::MAX && self.preemption.interval == Ns::ZERO {
            state.check_at += receive;
        }
        self.counts.interrupts += 1;
    }

    /// Has `cpu` notified to preempt its task.
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

    /// The timer core starts on the next message, skipping CPUs that run something else by now.
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

    /// Sends a message, which arrives after the delivery time.
    pub(super) fn send_message(&mut self, (cpu, run): (CpuId, u64)) {
        let state = &mut self.cpus[cpu.index()];
        state.message_at = self.view.now + self.preemption.deliver;
        state.message_run = run;
        self.schedule(cpu);
    }

    /// Returns whether the dispatch for which a message is meant is still running.
    pub(super) fn is_current(&self, (cpu, run): (CpuId, u64)) -> bool {
        let state = &self.cpus[cpu.index()];
        state.task.is_some() && state.run == run
    }

    /// A message arrives. During a switch or another message it is held until that is over; if it comes
    /// too late, it interrupts whatever runs now.
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
