//! The status words are the truth (I1): the agent reads them when it begins, when messages were lost, and when one does not come.

use super::Scheduler;
use super::table::{At, Is};
use crate::BackendError;
use crate::model::{QueueId, State, ThreadWord};
use heddle_core::{CpuId, Enqueue, Policy, TaskId};

/// How often a thread's unread messages are read so that it can be associated with another queue.
const TRIES: usize = 100;

fn has_cpu(word: &ThreadWord) -> bool {
    matches!(word.state, State::Latched | State::OnCpu)
}

impl<P: Policy> Scheduler<'_, P> {
    /// Reads what is so of all threads. Those on CPUs stay there.
    pub fn adopt(&mut self) {
        self.tally.counts.adoptions += 1;
        self.view.now = self.backend.now();
        for at in 0..self.reads.len() {
            // Before the words: what comes after it is a message that we shall read.
            let word = self.backend.queue(self.reads[at].id);
            let read = &mut self.reads[at];
            read.saw(word.aseq, &word);
            read.lost = word.lost;
        }
        let threads = self.backend.threads();
        threads.iter().for_each(|&task| self.redirect(task));
        // Who has a CPU comes first: with nobody in the queues, the policy leaves them theirs.
        for runs in [true, false] {
            for &task in &threads {
                if has_cpu(&self.backend.thread(task)) == runs {
                    self.resync(task);
                }
            }
        }
        let known = |&at: &usize| self.threads[at].is != Is::Gone;
        for at in (0..self.threads.len()).filter(known).collect::<Vec<_>>() {
            self.resync(TaskId(at as u32));
        }
    }

    /// Sends all threads' messages to `queue`, for an agent that reads that one only. What is unread elsewhere is dropped: the
    /// status words have it.
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

    /// Messages of a thread that went to an agent before us, which had more queues, come to us.
    fn redirect(&mut self, task: TaskId) {
        let word = self.backend.thread(task);
        if word.state != State::Free && self.reads.iter().all(|read| read.id != word.queue) {
            self.send_to(task, self.reads[0].id);
        }
    }

    /// Brings what is known of a thread up to its status word.
    pub(super) fn resync(&mut self, task: TaskId) {
        let (word, known) = (self.backend.thread(task), self.threads[task.index()]);
        if word.state == State::Free {
            if known.is != Is::Gone {
                self.gone(task);
            }
            return;
        }
        if known.is == Is::Gone || known.tid != word.tid {
            self.succeed(task, word.tid, word.tseq);
        }
        self.thread(task).tseq = word.tseq;
        self.follow(task, &word);
        self.settle_seat(task);
    }

    fn follow(&mut self, task: TaskId, word: &ThreadWord) {
        let known = self.threads[task.index()];
        match word.state {
            State::Blocked if known.is == Is::Blocked && known.at != At::Nowhere => {}
            State::Blocked => self.blocked(task),
            State::Parked if known.is == Is::Parked => {}
            State::Parked => {
                self.runnable(task, Enqueue::Preempted, word.runnable_at.min(self.view.now))
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
    fn running(&mut self, task: TaskId, cpu: CpuId, state: State) {
        let known = self.threads[task.index()];
        if known.is_seated() && known.home == cpu {
            // As we have it; or our commit came through though we took it to have failed.
            let made = crate::model::Transaction::new(task, known.tid, cpu, known.tseq);
            return if known.is == Is::Given { self.settle_seat(task) } else { self.given(&made) };
        }
        let thread = self.thread(task);
        (thread.is, thread.on) = (Is::Given, cpu);
        match known.at {
            At::Nowhere => {
                self.init(task);
                self.follow_running(task, cpu, Enqueue::New);
            }
            At::Asleep => self.follow_running(task, cpu, Enqueue::Wakeup),
            // The policy has other plans for it.
            At::Queued | At::Aside | At::Out | At::Guest => {
                self.thread(task).is = Is::Leaving;
                match state {
                    State::Latched => drop(self.backend.recall(cpu)),
                    _ => drop(self.backend.preempt(cpu)),
                }
            }
        }
    }

    /// Lets the policy have a thread as running that runs already, if it would have chosen it.
    fn follow_running(&mut self, task: TaskId, cpu: CpuId, why: Enqueue) {
        if let Some(other) = self.cpus[cpu.index()].task {
            self.depart(other, cpu);
            self.requeue(other, Enqueue::Preempted);
        }
        self.enqueue(cpu, task, why);
        self.succession(cpu, Some(task));
    }
}
