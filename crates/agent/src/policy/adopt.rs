//! Status words are the truth (I1). The agent reads them when it starts, when messages were lost, and when a
//! message does not come.

use super::Scheduler;
use super::thread::{KernelState, PolicyState};
use crate::BackendError;
use crate::model::{QueueId, State, ThreadWord};
use heddle_core::{CpuId, Enqueue, Policy, TaskId};

/// How often to drain a thread's unread messages before giving up on associating it with another queue.
const TRIES: usize = 100;

fn has_cpu(word: &ThreadWord) -> bool {
    matches!(word.state, State::Latched | State::OnCpu)
}

impl<P: Policy> Scheduler<'_, P> {
    /// Reads the status words of all threads. Threads on CPUs stay there.
    pub fn adopt(&mut self) {
        self.tally.counts.adoptions += 1;
        self.view.now = self.backend.now();
        for at in 0..self.readers.len() {
            // Read before the threads' words: whatever happens later comes as a message.
            let word = self.backend.queue(self.readers[at].id);
            let read = &mut self.readers[at];
            // What was lost before the agent came was not its loss.
            if self.tally.counts.adoptions > 1 {
                let lost = &mut self.tally.counts.lost;
                *lost = lost.saturating_add(word.lost.saturating_sub(read.lost));
            }
            read.advance(word.aseq, &word);
            read.lost = word.lost;
        }
        let threads = self.backend.threads();
        threads.iter().for_each(|&task| self.redirect(task));
        // Threads that have a CPU come first: while its queues are empty, the policy leaves them there.
        for runs in [true, false] {
            for &task in &threads {
                if has_cpu(&self.backend.thread(task)) == runs {
                    self.resync(task);
                }
            }
        }
        let known = |&at: &usize| self.threads[at].kernel_state() != KernelState::Gone;
        for at in (0..self.threads.len()).filter(known).collect::<Vec<_>>() {
            self.resync(TaskId(at as u32));
        }
    }

    /// Sends all threads' messages to `queue`, for an agent that reads only that queue. Unread messages
    /// elsewhere are dropped; the status words have their content.
    pub fn gather(&mut self, queue: QueueId) {
        for task in self.backend.threads() {
            self.send_to(task, queue);
        }
    }

    fn send_to(&mut self, task: TaskId, queue: QueueId) {
        let old = self.backend.thread(task).queue;
        for _ in 0..TRIES {
            if old == queue
                || !matches!(self.backend.associate(task, queue), Err(BackendError::Pending(_)))
            {
                return;
            }
            while self.backend.next(old).is_some() {}
        }
    }

    /// Redirects to our queue a thread whose messages went to a queue of an earlier agent.
    fn redirect(&mut self, task: TaskId) {
        let word = self.backend.thread(task);
        if word.state != State::Free && self.readers.iter().all(|read| read.id != word.queue) {
            self.send_to(task, self.readers[0].id);
        }
    }

    /// Updates what the agent knows of a thread from its status word.
    pub(super) fn resync(&mut self, task: TaskId) {
        let (word, known) = (self.backend.thread(task), self.threads[task.index()]);
        self.view.touch(known.home);
        if word.state == State::Free {
            if known.kernel_state() != KernelState::Gone {
                self.gone(task);
            }
            return;
        }
        if known.kernel_state() == KernelState::Gone || known.tid != word.tid {
            self.reuse_slot(task, word.tid, word.tseq);
        }
        self.thread(task).tseq = word.tseq;
        self.follow(task, &word);
        self.retry_assignment(task);
    }

    fn follow(&mut self, task: TaskId, word: &ThreadWord) {
        let known = self.threads[task.index()];
        match word.state {
            State::Blocked
                if known.kernel_state() == KernelState::Blocked
                    && known.policy_state() != PolicyState::Unknown => {}
            State::Blocked => self.blocked(task),
            State::Parked if known.kernel_state() == KernelState::Parked => {}
            State::Parked => {
                self.runnable(task, Enqueue::Preempted, word.runnable_at.min(self.view.now))
            }
            State::Latched if word.is_offered() => {
                // By an earlier agent, or in a moment of which we have lost the message. If a CPU takes it now, its
                // message will say so.
                self.backend.revoke(task);
                self.runnable(task, Enqueue::Preempted, word.runnable_at.min(self.view.now));
            }
            State::Latched | State::OnCpu => {
                if let Some(cpu) = self.cpu_of(word.os_cpu) {
                    self.running(task, cpu, word.state);
                }
            }
            State::Free => {}
        }
    }

    /// The kernel has `task` on `cpu`, latched or running.
    pub(super) fn running(&mut self, task: TaskId, cpu: CpuId, state: State) {
        let known = self.threads[task.index()];
        if known.is_assigned() && known.home == cpu {
            // As we know it, or our commit succeeded although we took it to have failed.
            let made = crate::model::Transaction::new(task, known.tid, cpu, known.tseq);
            return if known.kernel_state() == KernelState::Committed {
                self.retry_assignment(task)
            } else {
                self.note_commit(&made)
            };
        }
        let thread = self.thread(task);
        thread.set_kernel_state(KernelState::Committed);
        thread.on = cpu;
        match known.policy_state() {
            PolicyState::Queued if known.kernel_state() == KernelState::Offered => {
                self.taken(task, cpu);
            }
            PolicyState::Unknown => {
                self.init(task);
                self.follow_running(task, cpu, Enqueue::New);
            }
            PolicyState::Asleep => self.follow_running(task, cpu, Enqueue::Wakeup),
            // The policy has assigned it elsewhere.
            PolicyState::Queued
            | PolicyState::Deferred
            | PolicyState::Dispatched
            | PolicyState::DispatchedDeferred => {
                self.thread(task).set_kernel_state(KernelState::Leaving);
                match state {
                    State::Latched => drop(self.backend.recall(cpu)),
                    _ => drop(self.backend.preempt(cpu)),
                }
            }
        }
    }

    /// Lets the policy have a thread as running that runs already, if it would have chosen it.
    fn follow_running(&mut self, task: TaskId, cpu: CpuId, why: Enqueue) {
        self.displace(cpu);
        self.enqueue(cpu, task, why);
        self.find_successor(cpu, Some(task));
    }

    /// Ends the assignment of `cpu`, which runs another thread.
    pub(super) fn displace(&mut self, cpu: CpuId) {
        if let Some(other) = self.cpus[cpu.index()].task {
            self.start_leaving(other, cpu);
            self.requeue(other, Enqueue::Preempted);
        }
    }
}
