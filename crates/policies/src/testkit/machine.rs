//! The model of a machine: a hook that does everything that hooks do, and checks every answer.

use super::events::{Commit, Event, Leave, Scenario};
use super::ledger::{At, Ledger, Run};
use super::world::World;
use super::{Promises, Violation};
use heddle_core::{
    Balance, CpuId, Enqueue, Model, Ns, Policy, Resched, TaskAttrs, TaskId, TaskSlot,
};
use std::vec::Vec;

pub(super) type Step = Result<(), Violation>;

/// How often a policy may name a victim that has nothing, for each CPU.
const ATTEMPTS: usize = 8;
/// How often a policy may put off the decision to preempt one task.
const DELAYS: usize = 10_000;
/// After how many times, each by a quantum or more, it counts as decided: one of strict priorities puts it off for as long as only
/// less urgent tasks wait.
const LOOKS: usize = 32;

pub(super) struct Machine<P: Policy> {
    pub(super) policy: P,
    pub(super) queues: Vec<P::Queue>,
    pub(super) world: World<P::Task>,
    pub(super) ledger: Ledger,
    cpus: usize,
    stale: bool,
}

impl<P: Policy> Machine<P> {
    pub fn new(policy: P, cpus: usize) -> Machine<P> {
        let queues = if P::MODEL == Model::Central { 1 } else { cpus };
        let queues = (0..queues).map(|_| policy.queue()).collect();
        let (world, ledger) = (World::new(cpus), Ledger::new(cpus));
        Machine { policy, queues, world, ledger, cpus, stale: false }
    }

    /// Plays all events, then sees that nobody starves, then that everybody gets out.
    pub fn play(&mut self, scenario: &Scenario, promises: Promises) -> Step {
        for &event in &scenario.events {
            self.event(event)?;
            self.settle()?;
        }
        self.stale = false;
        self.settle()?;
        if promises.fair {
            self.churn()?;
        }
        self.drain()
    }

    fn event(&mut self, event: Event) -> Step {
        match event {
            Event::Spawn { cpu, attrs } => self.spawn(self.cpu(cpu), attrs)?,
            Event::Pick { cpu, commit } => self.pick(self.cpu(cpu), commit).map(drop)?,
            Event::Leave { cpu, how } => self.leave(self.cpu(cpu), how)?,
            Event::Wake { nth, cpu } => self.wake_nth(nth, self.cpu(cpu))?,
            Event::Pass { us } => self.pass(Ns::from_us(us.into())),
            Event::Tick { cpu } => self.tick(self.cpu(cpu))?,
            Event::RunOut { cpu } => self.run_out(self.cpu(cpu))?,
            Event::Poll => self.poll()?,
            Event::Stale { on } => self.stale = on,
        }
        Ok(())
    }

    fn cpu(&self, number: u8) -> CpuId {
        CpuId((usize::from(number) % self.cpus) as u16)
    }

    pub(super) fn all_cpus(&self) -> impl Iterator<Item = CpuId> + use<P> {
        (0..self.cpus as u16).map(CpuId)
    }

    fn queue_of(&self, cpu: CpuId) -> usize {
        if P::MODEL == Model::Central { 0 } else { cpu.index() }
    }

    /// Compares every length with the ledger and brings the hints up to date.
    pub(super) fn settle(&mut self) -> Step {
        for (i, queue) in self.queues.iter().enumerate() {
            let (says, waiting) =
                (self.policy.len(queue), self.ledger.all(|at| at == At::Waiting(i)).count());
            if says != waiting {
                return Err(Violation::Length { says, waiting });
            }
        }
        for cpu in self.all_cpus().filter(|_| !self.stale) {
            let waiting = self.policy.len(&self.queues[self.queue_of(cpu)]);
            self.world.view.waiting[cpu.index()] = waiting;
            let runs = self.ledger.running[cpu.index()].is_some();
            self.world.view.idle[cpu.index()] = !runs && waiting == 0;
        }
        Ok(())
    }

    pub(super) fn pass(&mut self, time: Ns) {
        self.world.view.now += time;
        self.ledger.pass(time);
    }

    fn spawn(&mut self, cpu: CpuId, attrs: TaskAttrs) -> Step {
        let Some(task) = self.ledger.all(|at| at == At::Free).next() else { return Ok(()) };
        self.world.slots[task.index()] = TaskSlot::default();
        self.world.slots[task.index()].set_attrs(attrs);
        self.ledger.home[task.index()] = cpu;
        self.policy.task_init(&self.world.cx(cpu), task);
        self.admit(cpu, task, Enqueue::New)
    }

    fn wake_nth(&mut self, nth: u8, by: CpuId) -> Step {
        let asleep: Vec<_> = self.ledger.all(|at| at == At::Asleep).collect();
        match asleep.len() {
            0 => Ok(()),
            n => self.admit(by, asleep[usize::from(nth) % n], Enqueue::Wakeup),
        }
    }

    /// Queues a task that comes from outside where the policy wants it.
    pub(super) fn admit(&mut self, by: CpuId, task: TaskId, why: Enqueue) -> Step {
        let home = self.ledger.home[task.index()];
        let place = self.policy.place(&self.world.cx(by), task, home);
        match P::MODEL {
            Model::Central => self.enqueue(by, task, why),
            Model::PerCpu if place.index() < self.cpus => self.enqueue(place, task, why),
            Model::PerCpu => return Err(Violation::WrongCpu(place)),
        }
        self.make_way(if P::MODEL == Model::Central { by } else { place }, task)
    }

    /// Asks who shall make way for `task`, which was just enqueued at `cpu`, where every CPU of that queue is busy.
    fn make_way(&mut self, cpu: CpuId, task: TaskId) -> Step {
        let queue = self.queue_of(cpu);
        let own = |c: &CpuId| P::MODEL == Model::Central || *c == cpu;
        let busy = |c: CpuId| self.ledger.running[c.index()].is_some();
        if !P::PREEMPTS || !self.all_cpus().filter(own).all(busy) {
            return Ok(());
        }
        let cx = self.world.cx(cpu);
        match self.policy.preempt(&cx, &mut self.queues[queue], task) {
            Some(at) if at.index() >= self.cpus || !own(&at) => Err(Violation::WrongCpu(at)),
            Some(at) => {
                let run = self.ledger.running[at.index()].expect("all are busy");
                self.preempt(at, run.task);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn enqueue(&mut self, cpu: CpuId, task: TaskId, why: Enqueue) {
        let queue = self.queue_of(cpu);
        self.policy.enqueue(&self.world.cx(cpu), &mut self.queues[queue], task, why);
        self.ledger.at[task.index()] = At::Waiting(queue);
    }

    /// An idle `cpu` asks its queue, then its peers; the task that it got, whether or not it runs.
    pub(super) fn pick(&mut self, cpu: CpuId, commit: Commit) -> Result<Option<TaskId>, Violation> {
        if self.ledger.running[cpu.index()].is_some() {
            return Ok(None);
        }
        let (own, stolen) = match self.dequeue(cpu)? {
            Some(task) => (Some(task), None),
            None => (None, self.hunt(cpu)?),
        };
        let Some(task) = own.or(stolen) else { return self.may_idle(cpu).map(|()| None) };
        match commit {
            Commit::Fails => self.enqueue(cpu, task, Enqueue::CommitFailed),
            Commit::Queues if stolen.is_some() => self.enqueue(cpu, task, Enqueue::Migrated),
            Commit::Runs | Commit::Queues => self.ledger.start(cpu, task),
        }
        Ok(Some(task))
    }

    fn dequeue(&mut self, cpu: CpuId) -> Result<Option<TaskId>, Violation> {
        let queue = self.queue_of(cpu);
        let task = self.policy.dequeue(&self.world.cx(cpu), &mut self.queues[queue]);
        task.map(|task| self.ledger.claim(queue, task)).transpose()
    }

    fn hunt(&mut self, cpu: CpuId) -> Result<Option<TaskId>, Violation> {
        if P::MODEL == Model::Central {
            return Ok(None);
        }
        for attempt in 0..ATTEMPTS * self.cpus {
            let cx = self.world.cx(cpu);
            let victim = match self.policy.balance(&cx, attempt) {
                Balance::From(victim) => victim,
                Balance::Later(Ns::ZERO) => return Err(Violation::EndlessBalance),
                Balance::Later(_) | Balance::Nowhere => return Ok(None),
            };
            if victim == cpu || victim.index() >= self.cpus {
                return Err(Violation::WrongCpu(victim));
            }
            if let Some(task) = self.policy.steal(&cx, victim, &mut self.queues[victim.index()]) {
                return self.ledger.claim(victim.index(), task).map(Some);
            }
        }
        Err(Violation::EndlessBalance)
    }

    /// With hints that are out of date, even a work-conserving policy may overlook a task.
    pub(super) fn may_idle(&self, cpu: CpuId) -> Step {
        let must_run = P::WORK_CONSERVING && !self.stale && self.ledger.first_waiting().is_some();
        if must_run { Err(Violation::Idle(cpu)) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self, cpu: CpuId, how: Leave) -> Step {
        let Some(Run { task, .. }) = self.ledger.running[cpu.index()].take() else {
            return Ok(());
        };
        let (cx, queue) = (self.world.cx(cpu), self.queue_of(cpu));
        match how {
            Leave::Yield => self.enqueue(cpu, task, Enqueue::Yield),
            Leave::Block => {
                self.policy.block(&cx, &mut self.queues[queue], task);
                self.ledger.at[task.index()] = At::Asleep;
            }
            Leave::Exit => {
                self.policy.task_exit(&cx, &mut self.queues[queue], task);
                self.ledger.at[task.index()] = At::Free;
            }
        }
        Ok(())
    }

    /// One question whether to preempt; obeyed where another task waits (Aspen, section 3.2).
    fn tick(&mut self, cpu: CpuId) -> Step {
        if let Some(run) = self.ledger.running[cpu.index()]
            && self.ask(cpu, run)? == Resched::Now
        {
            self.preempt(cpu, run.task);
        }
        Ok(())
    }

    fn run_out(&mut self, cpu: CpuId) -> Step {
        let mut looks = 0;
        for _ in 0..DELAYS {
            let Some(run) = self.ledger.running[cpu.index()] else { return Ok(()) };
            match self.ask(cpu, run)? {
                Resched::After(more) => {
                    self.pass(more);
                    looks += usize::from(self.policy.quantum().is_some_and(|least| more >= least));
                    if looks == LOOKS {
                        return Ok(());
                    }
                }
                Resched::Now => {
                    self.preempt(cpu, run.task);
                    return Ok(());
                }
                Resched::Never => return Ok(()),
            }
        }
        Err(Violation::Undecided)
    }

    fn ask(&mut self, cpu: CpuId, Run { task, ran }: Run) -> Result<Resched, Violation> {
        let queue = self.queue_of(cpu);
        let answer = self.policy.tick(&self.world.cx(cpu), &mut self.queues[queue], task, ran);
        let quantum = self.policy.quantum();
        match answer {
            Resched::After(Ns::ZERO) => Err(Violation::NoProgress),
            Resched::Now if quantum.is_none_or(|quantum| ran < quantum) => {
                Err(Violation::EarlyPreemption { ran, quantum })
            }
            _ => Ok(answer),
        }
    }

    fn preempt(&mut self, cpu: CpuId, task: TaskId) {
        if self.policy.len(&self.queues[self.queue_of(cpu)]) > 0 {
            self.ledger.running[cpu.index()] = None;
            self.enqueue(cpu, task, Enqueue::Preempted);
        }
    }
}
