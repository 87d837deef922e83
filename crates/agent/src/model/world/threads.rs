//! Threads and their scripts.

use super::super::State;
use super::events::Event;
use super::{Step, World};
use heddle_core::{Ns, Rng, TaskId};

/// A thread's script and its progress.
pub(super) struct Actor {
    script: Box<dyn FnMut(&Rng) -> Step + Send>,
    /// The step ends when the thread's total time on CPUs reaches this; none between steps.
    goal: Option<Ns>,
}

impl Actor {
    pub fn new(script: impl FnMut(&Rng) -> Step + Send + 'static) -> Actor {
        Actor { script: Box::new(script), goal: None }
    }
}

impl World {
    /// Continues the scripts of threads that have got a CPU (W2).
    pub(super) fn follow_starts(&mut self) {
        // A step of zero length lets another thread start.
        loop {
            let started = self.machine.take_starts();
            if started.is_empty() {
                return;
            }
            started.into_iter().for_each(|thread| self.go_on(thread));
        }
    }

    /// Schedules the end of the step of a thread that just got a CPU.
    fn go_on(&mut self, thread: TaskId) {
        let word = self.machine.thread(thread);
        let Some(Some(actor)) = self.actors.get_mut(thread.index()) else { return };
        if word.state != State::OnCpu {
            return;
        }
        match actor.goal {
            Some(goal) => {
                let rest = goal - word.runtime;
                self.events.push(word.on_at + rest, Event::Done(thread, word.on_at));
            }
            None => self.step(thread),
        }
    }

    /// Ends the step, if the thread has kept its CPU since.
    pub(super) fn done(&mut self, thread: TaskId, since: Ns) {
        let word = self.machine.thread(thread);
        let Some(Some(actor)) = self.actors.get_mut(thread.index()) else { return };
        let stretch = self.machine.time() - word.on_at;
        let is_done = actor.goal.is_some_and(|goal| word.runtime + stretch >= goal);
        if word.state == State::OnCpu && word.on_at == since && is_done {
            actor.goal = None;
            self.totals.steps += 1;
            self.step(thread);
        }
    }

    fn step(&mut self, thread: TaskId) {
        let Some(Some(actor)) = self.actors.get_mut(thread.index()) else { return };
        let (word, now) = (self.machine.thread(thread), self.machine.time());
        match (actor.script)(&self.rng) {
            Step::Run(time) => {
                actor.goal = Some(word.runtime + (now - word.on_at) + time);
                self.events.push(now + time, Event::Done(thread, word.on_at));
            }
            Step::Sleep(time) => {
                self.machine.block(thread);
                self.events.push(now + time, Event::Wake(thread, word.tid));
            }
            Step::Yield => drop(self.machine.yield_now(thread)),
            Step::Exit => {
                self.actors[thread.index()] = None;
                self.totals.exits += 1;
                self.machine.exit(thread);
            }
        }
        self.notify_agent();
    }
}
