//! Which thread a CPU gets.

use super::cpus::{Cpu, Stage};
use super::table::{At, Is};
use super::{PATIENCE, Scheduler};
use crate::model::{Occupant, State};
use heddle_core::driver::{Found, Proposal, Stolen};
use heddle_core::{CpuId, CpuSet, Enqueue, Model, Ns, Policy, TaskId};

/// Proposals of threads that are asleep, gone or not allowed that are looked through for one CPU.
const DROPS: usize = 256;

/// Who is on a CPU without a seat taken.
enum Ground {
    /// Nobody who would keep a thread from running at once.
    Quiet,
    /// Somebody above managed threads: a thread would wait behind.
    Held,
    /// It is offline, the agent's own, or not free whatever we think.
    Barred,
}

impl<P: Policy> Scheduler<'_, P> {
    /// Gives every free CPU a thread, if one waits: quiet CPUs first, those that others hold after them.
    pub(super) fn fill(&mut self, scope: Option<CpuId>) {
        let mut held = CpuSet::EMPTY;
        let free = self.free;
        for cpu in free.iter() {
            let ground = self.ground(cpu);
            self.view.set_idle(cpu, matches!(ground, Ground::Quiet));
            if matches!(ground, Ground::Held) {
                held.insert(cpu);
            }
            self.bar(cpu);
            if matches!(ground, Ground::Barred) && !self.barred.contains(cpu) {
                // News of who is there must be on its way. If not, we look again.
                self.retry_at = self.retry_at.min(self.view.now + PATIENCE);
            }
        }
        self.serve(self.own_of(scope, &self.view.idle()));
        let held = self.own_of(scope, &held);
        self.serve(held);
        for cpu in held.iter().filter(|&cpu| self.cpus[cpu.index()].task.is_some()) {
            self.behind.insert(cpu);
        }
    }

    fn serve(&mut self, cpus: CpuSet) {
        if cpus.is_empty() || self.view.total() == 0 && self.asides.is_empty() {
            return;
        }
        if P::MODEL == Model::Central {
            return self.poll(cpus);
        }
        // Nobody takes from another's queue what that one is about to take itself.
        for at_hand in [true, false] {
            for cpu in cpus.iter() {
                if !at_hand || self.view.waiting(cpu.index()) > 0 {
                    self.pick(cpu);
                }
            }
        }
    }

    fn ground(&self, cpu: CpuId) -> Ground {
        let word = self.backend.cpu(cpu);
        if !word.online || self.own == Some(cpu) || !self.is_left(cpu, &word) {
            return Ground::Barred;
        }
        let below = self.backend.traits().below_ordinary;
        match word.occupant {
            Occupant::Realtime => Ground::Held,
            Occupant::Ordinary if below => Ground::Held,
            // An agent that sleeps between its rounds has gone before the thread comes.
            _ => Ground::Quiet,
        }
    }

    /// Whether nobody is on `cpu`, or only who has been told to leave it. A backend that does not really park shows who went on
    /// after that, with nobody else there, as the last who had the CPU.
    fn is_left(&self, cpu: CpuId, word: &crate::model::CpuWord) -> bool {
        let leaves = |task: TaskId| {
            // A word may name a slot that is nobody's.
            let known = self.threads.get(task.index());
            let is_told = known.is_some_and(|known| known.is == Is::Leaving && known.on == cpu);
            is_told || matches!(self.backend.thread(task).state, State::Blocked | State::Parked)
        };
        word.current.is_none_or(leaves) && word.latched.is_none_or(leaves)
    }

    pub(super) fn is_quiet(&self, cpu: CpuId) -> bool {
        matches!(self.ground(cpu), Ground::Quiet)
    }

    /// Takes note of whether `cpu` runs threads at all: not while it is offline or the agent spins on it.
    fn bar(&mut self, cpu: CpuId) {
        if self.own != Some(cpu) && self.backend.cpu(cpu).online {
            return self.barred.remove(cpu);
        }
        self.barred.insert(cpu);
        if P::MODEL == Model::PerCpu && self.view.waiting(cpu.index()) > 0 {
            self.evacuate(cpu);
        }
    }

    /// Takes the threads that wait for `cpu`, which runs none, to where they may run. As if each had run and slept: policies
    /// know of no other way from the head of one queue to another.
    fn evacuate(&mut self, cpu: CpuId) {
        for _ in 0..self.view.waiting(cpu.index()) {
            let Some(task) = self.next(cpu) else { return };
            self.thread(task).at = At::Out;
            self.told_asleep(task);
            let to = self.allowed_near(task, cpu);
            self.enqueue(to, task, Enqueue::Wakeup);
        }
    }

    /// Central: the policy's dispatcher has the say which CPU gets what.
    fn poll(&mut self, mut cpus: CpuSet) {
        let asked = if self.asides.is_empty() { CpuSet::EMPTY } else { cpus };
        for cpu in asked.iter().filter(|&cpu| self.pick_aside(cpu)) {
            cpus.remove(cpu);
        }
        let mut dropped = 0;
        while !cpus.is_empty() && self.view.total() > 0 && dropped < DROPS {
            let mut assigned = std::mem::take(&mut self.assigned);
            assigned.clear();
            let first = cpus.next_from(CpuId(0)).unwrap_or_default();
            self.on(first).poll(cpus, |cpu, task| assigned.push((cpu, task.withdraw())));
            let seated = assigned.iter().filter(|&&(cpu, task)| self.propose(cpu, task)).count();
            dropped += assigned.len() - seated;
            let is_done = seated == assigned.len();
            self.assigned = assigned;
            if is_done {
                return;
            }
            cpus = cpus.and(&self.free);
        }
    }

    /// A thread waits for `cpu`, which gets it when the messages are read if it is idle: the next one is placed elsewhere.
    pub(super) fn promise(&mut self, cpu: CpuId) {
        if P::MODEL == Model::PerCpu {
            self.view.set_idle(cpu, false);
        }
    }

    /// `cpu` looks for a thread: set aside for it, in its queue, in others'. False if there is none.
    pub(super) fn pick(&mut self, cpu: CpuId) -> bool {
        // What was found for the CPU before this one may have been placed here.
        if self.cpus[cpu.index()].task.is_some() || self.pick_aside(cpu) {
            return true;
        }
        for _ in 0..DROPS {
            let Some(task) = self.next(cpu) else { break };
            if self.propose(cpu, task) {
                return true;
            }
        }
        self.view.total() > 0 && self.steal(cpu)
    }

    fn pick_aside(&mut self, cpu: CpuId) -> bool {
        let Some(task) = self.take_aside(cpu) else { return false };
        self.seat(cpu, task, At::Guest);
        true
    }

    /// Takes threads from the queues of CPUs that the policy names until one can run here.
    fn steal(&mut self, cpu: CpuId) -> bool {
        for _ in 0..DROPS {
            match self.search(cpu) {
                Found::Tasks(stolen) => {
                    if self.take(cpu, stolen) {
                        return true;
                    }
                }
                Found::Later(time) => {
                    self.cpu(cpu).retry = self.view.now + time;
                    return false;
                }
                Found::Nothing => return false,
            }
        }
        false
    }

    /// The first of the stolen threads that can run gets `cpu`, the others wait there; false if none can run.
    fn take(&mut self, cpu: CpuId, stolen: Stolen<TaskId>) -> bool {
        self.tally.counts.steals += stolen.len() as u64;
        let mut is_taken = false;
        for task in stolen.into_iter().map(Proposal::withdraw) {
            match is_taken {
                true => self.enqueue(cpu, task, Enqueue::Migrated),
                false => is_taken = self.propose(cpu, task),
            }
            self.route(task, cpu);
        }
        is_taken
    }

    /// The policy proposes `task` for `cpu`. What the kernel has said of it meanwhile comes to effect here; false if the CPU is
    /// still free then.
    fn propose(&mut self, cpu: CpuId, task: TaskId) -> bool {
        let known = self.thread(task);
        (known.at, known.home) = (At::Out, cpu);
        let known = *known;
        match known.is {
            _ if known.is_reborn => self.rebirth(task),
            Is::Gone => self.told_end(task),
            Is::Blocked => self.told_asleep(task),
            _ if !self.may_run(task, cpu) => self.set_aside(task),
            Is::Parked | Is::Given | Is::Leaving => {
                self.seat(cpu, task, At::Out);
            }
        }
        // A thread that was born again may have been placed here.
        self.cpus[cpu.index()].task.is_some()
    }

    /// The thread that the policy had in its queue is gone, and another has its slot.
    fn rebirth(&mut self, task: TaskId) {
        self.thread(task).is_reborn = false;
        self.told_end(task);
        match self.threads[task.index()].is {
            Is::Gone => {}
            Is::Blocked => self.blocked(task),
            _ => self.admit_new(task, self.view.now),
        }
    }

    /// `task` gets `cpu`. One that is there still goes on; one of which the last news is not heard yet waits for that.
    fn seat(&mut self, cpu: CpuId, task: TaskId, at: At) {
        let known = self.thread(task);
        (known.at, known.home) = (at, cpu);
        let known = *known;
        let stage = match known.is {
            Is::Given if known.on == cpu => Stage::Given,
            Is::Parked => Stage::Chosen,
            _ => Stage::Awaiting,
        };
        let now = self.view.now;
        let mut look = Ns::MAX;
        if stage == Stage::Given {
            look = self.first_look();
            self.turn_begins(cpu, task);
        }
        let before = self.cpus[cpu.index()].before;
        let ran_before = self.run_in_all(task);
        let seat = Cpu { task: Some(task), stage, since: now, ran_before, ..Cpu::default() };
        let state = Cpu { before, look, ..seat };
        debug_assert!(self.cpus[cpu.index()].task.is_none(), "P1: one thread a CPU");
        *self.cpu(cpu) = state;
        self.free.remove(cpu);
        self.view.set_idle(cpu, false);
        match stage {
            Stage::Chosen => self.chosen.insert(cpu),
            Stage::Awaiting => self.awaiting.insert(cpu),
            _ => {}
        }
    }

    /// Nobody sits on `cpu` any more.
    pub(super) fn vacate(&mut self, cpu: CpuId) {
        self.force(cpu);
        self.turn_ends(cpu);
        *self.cpu(cpu) = Cpu::default();
        self.free.insert(cpu);
        for set in [&mut self.chosen, &mut self.awaiting, &mut self.overdue, &mut self.behind] {
            set.remove(cpu);
        }
        self.view.set_idle(cpu, self.is_quiet(cpu));
    }

    /// Commits that wait behind others while a CPU is idle are taken back, for it.
    pub(super) fn rescue(&mut self, scope: Option<CpuId>) {
        if self.behind.is_empty() {
            return;
        }
        let idle = self.own_of(scope, &self.view.idle());
        let behind = self.behind;
        for cpu in behind.iter() {
            let word = self.backend.cpu(cpu);
            let Some(task) = self.cpus[cpu.index()].task.filter(|&task| word.latched == Some(task))
            else {
                self.behind.remove(cpu);
                continue;
            };
            let is_better = self.backend.affinity(task).and(&idle);
            if !is_better.is_empty() && self.backend.recall(cpu).is_some() {
                self.tally.counts.recalls += 1;
                self.behind.remove(cpu);
                self.retry_at = self.view.now;
            }
        }
    }

    /// Local agents: sends a thread's messages to the agent of the CPU in whose queue it is. Where some are unread yet, they
    /// go on to where they went: any agent takes any news, and the next move of the thread brings it right.
    pub(super) fn route(&mut self, task: TaskId, cpu: CpuId) {
        if self.reads.len() > 1 {
            let _ = self.backend.associate(task, self.reads[cpu.index()].id);
            self.nudged.insert(cpu);
        }
    }

    pub(super) fn requeue(&mut self, task: TaskId, why: Enqueue) {
        let known = self.threads[task.index()];
        self.vacate(known.home);
        match known.at {
            At::Out => self.enqueue(known.home, task, why),
            _ => {
                self.asides.push_back(&self.slots, task);
                self.thread(task).at = At::Aside;
            }
        }
    }
}
