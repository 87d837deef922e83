//! CPUs: they pick tasks, run them and leave them.

use super::jobs::{Jobs, Kind};
use super::meter::Done;
use super::{Engine, FIRST_CPU};
use heddle_core::driver::{Proposal, SearchResult};
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, TaskId};

/// One CPU; idle if it has no task.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub task: Option<TaskId>,
    /// When the task's own work begins or began: after the switch, and later by the time interruptions
    /// took.
    pub began: Ns,
    /// Until when the CPU is busy with a switch or a message: no other message gets through before.
    pub resumes: Ns,
    /// The cost of switch and messages since the task got the CPU.
    pub charged: Ns,
    /// When the task is done if nothing intervenes.
    pub ends: Ns,
    /// When to ask the policy whether the task may continue; never for an idle CPU.
    pub check_at: Ns,
    /// When a message to preempt arrives, and the dispatch for which it is meant.
    pub message_at: Ns,
    pub message_run: u64,
    /// The task was asked to yield and has not done so yet.
    pub asked: bool,
    /// Counts dispatches, to recognise late messages.
    pub run: u64,
    /// When an idle CPU looks again ([`heddle_core::Balance::Later`]).
    pub retry: Ns,
    /// Time that it must spend before its next task, while the dispatcher finds one.
    owed: Ns,
    /// Time it has spent on requests that have left it.
    pub worked: Ns,
    /// The task that it ran last, by birth, and whether it was batch work.
    last: Option<(u64, bool)>,
}

impl Default for Cpu {
    fn default() -> Cpu {
        let (never, none) = (Ns::MAX, Ns::ZERO);
        Cpu {
            task: None,
            began: none,
            resumes: none,
            charged: none,
            ends: never,
            check_at: never,
            message_at: never,
            message_run: 0,
            asked: false,
            run: 0,
            retry: never,
            owed: none,
            worked: none,
            last: None,
        }
    }
}

/// Where the time of all CPUs went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    /// To the work of requests.
    pub requests: Ns,
    /// To best-effort work.
    pub batch: Ns,
    /// To switches, messages and migrations.
    pub overhead: Ns,
}

impl CpuTime {
    fn add(&mut self, kind: Kind, time: Ns) {
        match kind {
            Kind::Batch => self.batch += time,
            _ => self.requests += time,
        }
    }

    /// Adds what still runs at the end, which may fall within a switch.
    pub(super) fn settle<T: Default>(&mut self, cpus: &[Cpu], jobs: &Jobs<T>, now: Ns) {
        for cpu in cpus {
            if let Some(task) = cpu.task {
                self.overhead += cpu.charged - (cpu.resumes - now).min(cpu.charged);
                self.add(jobs.get(task).kind, now.max(cpu.resumes) - cpu.began);
            }
        }
    }
}

/// Returns how much less time the least busy CPU spent on requests than the busiest, as a share of the
/// busiest CPU's time.
pub(super) fn imbalance(cpus: &[Cpu]) -> f64 {
    let most = cpus.iter().map(|cpu| cpu.worked.0).max().unwrap_or(0);
    let least = cpus.iter().map(|cpu| cpu.worked.0).min().unwrap_or(0);
    (most - least) as f64 / most.max(1) as f64
}

impl<P: Policy> Engine<'_, P> {
    /// Handles what is due on `cpu`: the end of the task before a message, a message before a question
    /// to the policy.
    pub(super) fn cpu_event(&mut self, cpu: CpuId) {
        let (now, state) = (self.view.now, &mut self.cpus[cpu.index()]);
        if state.task.is_none() && state.retry <= now {
            state.retry = Ns::MAX;
            // Whether it finds a task or not, its next event is entered.
            self.pick(cpu, Ns::ZERO);
            return;
        }
        if state.ends <= now {
            return self.finish(cpu);
        }
        if state.message_at <= now {
            self.receive_message(cpu);
        } else if state.check_at <= now {
            self.check_quantum(cpu);
        }
        self.schedule(cpu);
    }

    /// Enters the next event of `cpu` into the timetable (I1).
    #[inline]
    pub(super) fn schedule(&mut self, cpu: CpuId) {
        let state = &self.cpus[cpu.index()];
        let next = state.ends.min(state.check_at).min(state.message_at).min(state.retry);
        self.timetable.set(FIRST_CPU + cpu.index(), next);
    }

    /// `cpu`, which has no task, looks for one, after spending `extra`. Returns false if it found none
    /// and is idle.
    pub(super) fn pick(&mut self, cpu: CpuId, extra: Ns) -> bool {
        if self.dispatcher.is_some() {
            self.cpus[cpu.index()].owed = extra;
            self.dispatcher_freed(cpu);
            return true;
        }
        if let Some(task) = self.on(cpu).dequeue() {
            let locked = if P::MODEL == Model::Central { self.lock() } else { Ns::ZERO };
            self.start(cpu, task, self.view.now, extra + locked);
            return true;
        }
        if self.affinity.is_restricted() {
            let (stolen, later) = self.search_permitted(cpu);
            if !stolen.is_empty() {
                self.start_stolen(cpu, stolen, extra + self.costs.steal);
                return true;
            }
            self.cpus[cpu.index()].retry = later.map_or(Ns::MAX, |time| self.view.now + time);
            return self.idle(cpu);
        }
        match self.search(cpu) {
            SearchResult::Tasks(stolen) => {
                self.start_stolen(cpu, stolen, extra + self.costs.steal);
                return true;
            }
            SearchResult::Later(time) => self.cpus[cpu.index()].retry = self.view.now + time,
            SearchResult::Nothing => {}
        }
        self.idle(cpu)
    }

    /// `cpu` has found nothing to run. Returns false, as [`pick`](Engine::pick) does then.
    fn idle(&mut self, cpu: CpuId) -> bool {
        self.view.set_idle(cpu, true);
        self.schedule(cpu);
        false
    }

    /// Returns how long a CPU that takes from the central queue now is busy until it has released the
    /// queue's lock. The lock is fair: first come, first served.
    fn lock(&mut self) -> Ns {
        self.unlocked = self.unlocked.max(self.view.now) + self.costs.central_lock;
        self.unlocked - self.view.now
    }

    /// Runs the first of the stolen tasks on `cpu`; the others wait there with it.
    fn start_stolen(
        &mut self,
        cpu: CpuId,
        stolen: impl IntoIterator<Item = Proposal<TaskId>>,
        extra: Ns,
    ) {
        self.counts.steals += 1;
        let mut stolen = stolen.into_iter();
        let first = stolen.next().expect("a search that finds tasks finds one");
        for task in stolen {
            let task = task.migrate(&mut self.on(cpu));
            self.set_queued(cpu, task);
            self.counts.steals += 1;
        }
        self.start(cpu, first, self.view.now, extra);
    }

    /// Puts `task` on `cpu`, which receives it at time `at` and then spends `extra`.
    pub(super) fn start(&mut self, cpu: CpuId, task: Proposal<TaskId>, at: Ns, extra: Ns) {
        self.view.set_idle(cpu, false);
        if P::USES_EXPECTED_WAIT {
            self.view.turn_begins(cpu, at);
        }
        let task = task.commit(&self.call(cpu), cpu);
        let owed = std::mem::take(&mut self.cpus[cpu.index()].owed);
        let overhead = extra + owed + self.cost_of_start(cpu, task);
        let began = at + overhead;
        self.counts.starts += 1;
        let first_check = self.first_check(began);
        let job = self.jobs.get_mut(task);
        if !job.started {
            job.started = true;
            job.wait = began - job.arrived;
        }
        job.home = cpu;
        job.warm = true;
        let state = &mut self.cpus[cpu.index()];
        state.task = Some(task);
        state.run += 1;
        (state.began, state.resumes, state.charged) = (began, began, overhead);
        state.ends = began + job.remaining;
        state.check_at = first_check;
        state.retry = Ns::MAX;
        state.last = Some((job.born, job.kind == Kind::Batch));
        self.schedule(cpu);
    }

    /// Returns the cost of putting `task` on `cpu`. Continuing with the same task costs nothing.
    fn cost_of_start(&mut self, cpu: CpuId, task: TaskId) -> Ns {
        let job = self.jobs.get(task);
        let (last, batch) = (self.cpus[cpu.index()].last, job.kind == Kind::Batch);
        // The next request of a connection is another event, which is notified and fetched like the one
        // before.
        let goes_on = job.kind != Kind::Connection || job.started;
        if goes_on && last.is_some_and(|(born, _)| born == job.born) && job.home == cpu {
            return Ns::ZERO;
        }
        let mut cost = self.costs.switch;
        if last.is_some_and(|(_, was_batch)| was_batch != batch) {
            self.counts.app_switches += 1;
            cost += self.costs.app_switch;
        }
        if job.warm && job.home != cpu {
            self.counts.migrations += 1;
            cost += self.costs.migration[self.view.distance(job.home, cpu) as usize];
        }
        cost
    }

    /// The task of `cpu` leaves it: its work so far is counted (I2), and its pending events are
    /// cancelled.
    pub(super) fn leave(&mut self, cpu: CpuId) -> TaskId {
        let (now, state) = (self.view.now, &mut self.cpus[cpu.index()]);
        let task = state.task.take().expect("a CPU that leaves a task has one");
        if P::USES_EXPECTED_WAIT {
            self.view.turn_ends(cpu);
        }
        let job = self.jobs.get_mut(task);
        let worked = (now - state.began).min(job.remaining);
        job.remaining -= worked;
        job.ran += worked;
        (state.ends, state.check_at) = (Ns::MAX, Ns::MAX);
        if std::mem::take(&mut state.asked) {
            self.claims[Self::queue_of(cpu)] -= 1;
        }
        if job.kind != Kind::Batch {
            state.worked += worked;
        }
        self.time.add(job.kind, worked);
        self.time.overhead += std::mem::take(&mut state.charged);
        self.overdue.remove(cpu);
        task
    }

    /// The work of the task on `cpu` is done; enters the next event of `cpu`.
    fn finish(&mut self, cpu: CpuId) {
        if let Some(task) = self.cpus[cpu.index()].task
            && self.jobs.get(task).kind == Kind::Thread
        {
            return self.burst_ends(cpu, task);
        }
        let task = self.leave(cpu);
        let (job, now) = (self.jobs.get(task), self.view.now);
        let kind = job.kind;
        self.meter.record(Done {
            part: job.part,
            number: job.number,
            response: now - job.arrived,
            service: job.service,
            wait: job.wait,
        });
        self.counts.done += 1;
        match kind {
            Kind::Client => {
                self.on(cpu).block(task);
                self.sleep(task);
            }
            Kind::Connection => {
                self.on(cpu).block(task);
                self.release(task);
            }
            Kind::Request | Kind::Batch | Kind::Thread => {
                self.on(cpu).exit(task);
                self.jobs.remove(task);
            }
        }
        self.pick(cpu, Ns::ZERO);
        self.offer_again(cpu);
    }

    /// The task of `cpu` yields.
    pub(super) fn preempt(&mut self, cpu: CpuId) {
        self.counts.preemptions += 1;
        let task = self.leave(cpu);
        self.enqueue(cpu, task, Enqueue::Preempted);
        self.pick(cpu, self.preemption.receive);
        self.offer_again(cpu);
        // The preempted task waits now, and others may have outlived their quanta too.
        self.check_if_overdue(cpu);
    }
}
