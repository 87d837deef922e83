//! Messages, and the calls of the policy that they mean.

use super::Scheduler;
use super::cpus::Stage;
use super::table::{At, Is, Thread};
use crate::model::{Kind, Message};
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, TaskAttrs, TaskId};

impl<P: Policy> Scheduler<'_, P> {
    /// Takes note of a message about a thread.
    pub(super) fn news(&mut self, message: &Message) {
        let task = message.thread;
        let Some(known) = self.threads.get(task.index()).copied() else { return };
        let is_same = known.tid == message.tid && known.is != Is::Gone;
        match message.kind {
            _ if is_same && message.tseq <= known.tseq => self.tally.counts.old_messages += 1,
            Kind::ThreadCreated => self.created(message),
            // The end of an earlier thread of this slot, or news of one of which the agent has never heard.
            _ if !is_same => self.resync(task),
            _ => {
                self.thread(task).tseq = message.tseq;
                self.changed(message);
                self.settle_seat(task);
            }
        }
    }

    fn created(&mut self, message: &Message) {
        let task = message.thread;
        let word = self.backend.thread(task);
        if word.tid != message.tid {
            // It is gone again, and its slot is another's, of whom we shall hear.
            return self.resync(task);
        }
        self.succeed(task, message.tid, message.tseq);
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
            Kind::ThreadAffinity => self.affinity_changed(task),
            _ => {}
        }
    }

    /// What news of a thread means for a commit of it that failed: now it can be tried again.
    pub(super) fn settle_seat(&mut self, task: TaskId) {
        let known = self.threads[task.index()];
        let state = &mut self.cpus[known.home.index()];
        if known.is_seated() && known.is == Is::Parked && state.stage == Stage::Awaiting {
            state.stage = Stage::Chosen;
            self.awaiting.remove(known.home);
            self.chosen.insert(known.home);
        }
    }

    /// The slot of `task` is that of the thread `tid` now, whoever had it before.
    pub(super) fn succeed(&mut self, task: TaskId, tid: u32, tseq: crate::model::Seq) {
        if self.threads[task.index()].is != Is::Gone {
            self.gone(task);
        }
        let known = self.thread(task);
        known.is_reborn = known.at == At::Queued;
        (known.tid, known.tseq, known.is) = (tid, tseq, Is::Blocked);
    }

    /// The policy hears of a thread for the first time.
    pub(super) fn init(&mut self, task: TaskId) {
        let class = self.classify(task);
        self.slots[task.index()].set_attrs(TaskAttrs { class, ..TaskAttrs::default() });
        let home = self.home_of(task);
        self.thread(task).home = home;
        self.driver(home).init(task);
        self.thread(task).at = At::Asleep;
    }

    fn classify(&mut self, task: TaskId) -> heddle_core::Class {
        let word = self.backend.thread(task);
        let class = self.classes.class_of(task, &word);
        self.thread(task).class = class.0;
        class
    }

    /// Its class may have changed with what it works on. For threads that wait in no queue: policies keep queues by class.
    pub(super) fn reclassify(&mut self, task: TaskId) {
        let class = self.classify(task);
        let slot = &self.slots[task.index()];
        slot.set_attrs(TaskAttrs { class, ..slot.attrs() });
    }

    /// The CPU where the kernel last had it, if that is one of ours.
    fn home_of(&self, task: TaskId) -> CpuId {
        let os_cpu = self.backend.thread(task).os_cpu;
        self.cpu_of(os_cpu).unwrap_or(CpuId((task.index() % self.cpus.len()) as u16))
    }

    pub(super) fn cpu_of(&self, os_cpu: u32) -> Option<CpuId> {
        let at = self.backend.cpus().iter().position(|cpu| cpu.os_id == os_cpu)?;
        Some(CpuId(at as u16))
    }

    /// `task` could run.
    pub(super) fn runnable(&mut self, task: TaskId, why: Enqueue, since: Ns) {
        let known = *self.thread(task);
        self.thread(task).is = Is::Parked;
        match known.at {
            At::Nowhere => self.admit_new(task, since),
            At::Asleep => self.admit(task, Enqueue::Wakeup, since),
            // What it is now, the policy takes it for already.
            At::Queued | At::Aside => {}
            At::Out | At::Guest if !self.has_run(&known) => {}
            At::Out => {
                self.left(task);
                match why {
                    Enqueue::Wakeup | Enqueue::New => {
                        self.told_asleep(task);
                        self.admit(task, Enqueue::Wakeup, since);
                    }
                    _ => self.enqueue(known.home, task, why),
                }
            }
            At::Guest => {
                self.left(task);
                self.thread(task).at = At::Asleep;
                self.admit(task, Enqueue::Wakeup, Ns::ZERO);
            }
        }
    }

    /// Whether the kernel has had it where it sits.
    fn has_run(&self, known: &Thread) -> bool {
        self.cpus[known.home.index()].stage == Stage::Given
    }

    /// `task` sleeps.
    pub(super) fn blocked(&mut self, task: TaskId) {
        let known = *self.thread(task);
        self.thread(task).is = Is::Blocked;
        match known.at {
            At::Nowhere => self.init(task),
            At::Asleep | At::Queued => {}
            At::Aside => self.unaside(task),
            At::Out => {
                self.left(task);
                self.told_asleep(task);
            }
            At::Guest => {
                self.left(task);
                self.thread(task).at = At::Asleep;
            }
        }
    }

    /// There is no such thread any more.
    pub(super) fn gone(&mut self, task: TaskId) {
        let known = *self.thread(task);
        self.thread(task).is = Is::Gone;
        match known.at {
            // The policy has no "remove": it ends when it is proposed.
            At::Nowhere | At::Queued => return,
            At::Asleep => {}
            At::Aside => self.unaside(task),
            At::Out | At::Guest => self.left(task),
        }
        self.told_end(task);
    }

    /// It sits no longer where it sat.
    fn left(&mut self, task: TaskId) {
        let known = *self.thread(task);
        if self.has_run(&known) {
            self.record_delay(task);
        }
        self.vacate(known.home);
    }

    /// From its wakeup until it got the CPU. The status word has kept when that was.
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

    pub(super) fn told_asleep(&mut self, task: TaskId) {
        let home = self.threads[task.index()].home;
        self.on(home).block(task);
        self.thread(task).at = At::Asleep;
    }

    pub(super) fn told_end(&mut self, task: TaskId) {
        let home = self.threads[task.index()].home;
        self.on(home).exit(task);
        self.thread(task).at = At::Nowhere;
    }

    pub(super) fn admit_new(&mut self, task: TaskId, since: Ns) {
        self.init(task);
        self.admit(task, Enqueue::New, since);
    }

    /// Puts a thread that is new or was woken where the policy wants it.
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
        self.promise(cpu);
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
        (known.at, known.home) = (At::Queued, cpu);
        self.slots[task.index()].host.set(Self::queue_of(cpu) as u64 + 1);
        self.on(cpu).enqueue(task, why);
        self.look_if_overdue(cpu);
        self.route(task, cpu);
    }
}
