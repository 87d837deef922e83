//! The model of a machine: a hook that does everything that hooks do and checks every answer.

use super::events::{Commit, Event, Leave, Scenario};
use super::ledger::{Checks, Ledger, Run, TaskLocation};
use super::world::World;
use super::{Promises, Violation};
use heddle_core::driver::{
    ATTEMPTS, Driver, OwnedQueues, Proposal, RunQueue, SearchResult, Stolen,
};
use heddle_core::{CpuId, Enqueue, Model, Ns, Policy, Resched, TaskAttrs, TaskId, TaskSlot};
use std::vec::Vec;

pub(super) type Step = Result<(), Violation>;

/// How often a policy may put off the decision to preempt a task.
const DELAYS: usize = 10_000;
/// After this many delays of a quantum or more, the decision counts as made: a strict-priority policy
/// delays it for as long as only less urgent tasks wait.
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

    /// Plays all events, then checks that no task starves, then that every task can exit.
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
            Event::Remove { nth, cpu } => self.remove(nth, self.cpu(cpu)),
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

    /// Returns a driver for a call for `cpu`.
    fn driver(&self, cpu: CpuId) -> Driver<'_, P, Checks<'_>> {
        let checks = Checks { ledger: &self.ledger, queue: self.queue_of(cpu) };
        Driver::new(&self.policy, self.world.cx(cpu), checks)
    }

    /// Returns the queue of `cpu`, in a call for it.
    pub(super) fn on(&mut self, cpu: CpuId) -> RunQueue<'_, P, Checks<'_>> {
        let queue = self.queue_of(cpu);
        let checks = Checks { ledger: &self.ledger, queue };
        Driver::new(&self.policy, self.world.cx(cpu), checks).on(&mut self.queues[queue])
    }

    /// Compares every length with the ledger and updates the hints.
    pub(super) fn settle(&mut self) -> Step {
        if self.world.view.asked_for_waits.get() && !P::USES_EXPECTED_WAIT {
            return Err(Violation::Undeclared);
        }
        for (i, queue) in self.queues.iter().enumerate() {
            let (says, waiting) = (
                self.policy.len(queue),
                self.ledger.all(|at| at == TaskLocation::Waiting(i)).count(),
            );
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
        let Some(task) = self.ledger.all(|at| at == TaskLocation::Free).next() else {
            return Ok(());
        };
        self.world.slots[task.index()] = TaskSlot::default();
        self.world.slots[task.index()].set_attrs(attrs);
        self.ledger.home[task.index()] = cpu;
        self.driver(cpu).init(task);
        self.admit(cpu, task, Enqueue::New)
    }

    fn wake_nth(&mut self, nth: u8, by: CpuId) -> Step {
        let asleep: Vec<_> = self.ledger.all(|at| at == TaskLocation::Asleep).collect();
        match asleep.len() {
            0 => Ok(()),
            n => self.admit(by, asleep[usize::from(nth) % n], Enqueue::Wakeup),
        }
    }

    /// Queues an incoming task where the policy wants it.
    pub(super) fn admit(&mut self, by: CpuId, task: TaskId, why: Enqueue) -> Step {
        let home = self.ledger.home[task.index()];
        let place = match P::MODEL {
            Model::Central => by,
            Model::PerCpu => self.driver(by).place(task, home),
        };
        self.enqueue(place, task, why);
        self.make_way(place, task);
        Ok(())
    }

    /// If every CPU of the queue is busy, asks which task yields to `task`, just enqueued at `cpu`.
    fn make_way(&mut self, cpu: CpuId, task: TaskId) {
        let own = |c: &CpuId| P::MODEL == Model::Central || *c == cpu;
        let busy = |c: CpuId| self.ledger.running[c.index()].is_some();
        if !P::PREEMPTS || !self.all_cpus().filter(own).all(busy) {
            return;
        }
        if let Some(at) = self.on(cpu).preempt(task) {
            let run = self.ledger.running[at.index()].expect("all are busy");
            self.preempt(at, run.task);
        }
    }

    fn enqueue(&mut self, cpu: CpuId, task: TaskId, why: Enqueue) {
        self.on(cpu).enqueue(task, why);
        let queue = self.queue_of(cpu);
        self.ledger.enqueue(queue, task);
    }

    /// An idle `cpu` asks its queue, then its peers; returns the task it got, whether or not it runs.
    pub(super) fn pick(&mut self, cpu: CpuId, commit: Commit) -> Result<Option<TaskId>, Violation> {
        if self.ledger.running[cpu.index()].is_some() {
            return Ok(None);
        }
        if let Some(proposal) = self.dequeue(cpu)? {
            return Ok(Some(self.settle_proposal(cpu, proposal, commit == Commit::Fails)));
        }
        let mut stolen = self.search(cpu)?.into_iter().flatten();
        let Some(first) = stolen.next() else { return self.may_idle(cpu).map(|()| None) };
        let surplus: Vec<_> = stolen.collect();
        let picked = match commit {
            Commit::Queues => self.migrate(cpu, first),
            _ => self.settle_proposal(cpu, first, commit == Commit::Fails),
        };
        for task in surplus {
            self.migrate(cpu, task);
        }
        Ok(Some(picked))
    }

    /// An idle `cpu` runs one of the tasks that wait in its queue, if the policy lets go of it.
    fn remove(&mut self, nth: u8, cpu: CpuId) {
        let queue = self.queue_of(cpu);
        let waiting: Vec<_> = self.ledger.all(|at| at == TaskLocation::Waiting(queue)).collect();
        if self.ledger.running[cpu.index()].is_some() || waiting.is_empty() {
            return;
        }
        let task = waiting[usize::from(nth) % waiting.len()];
        if let Some(removed) = self.on(cpu).remove(task) {
            assert_eq!(removed.task(), task);
            self.settle_proposal(cpu, removed, false);
        } else {
            assert!(!P::PUBLISHES, "what was published can be taken");
        }
    }

    /// Runs the proposed task, or gives it back.
    fn settle_proposal(&mut self, cpu: CpuId, proposal: Proposal<TaskId>, fails: bool) -> TaskId {
        if fails {
            let task = proposal.reject(&mut self.on(cpu));
            self.ledger.enqueue(self.queue_of(cpu), task);
            return task;
        }
        let task = proposal.withdraw();
        self.ledger.start(cpu, task);
        task
    }

    fn migrate(&mut self, cpu: CpuId, proposal: Proposal<TaskId>) -> TaskId {
        let task = proposal.migrate(&mut self.on(cpu));
        self.ledger.enqueue(self.queue_of(cpu), task);
        task
    }

    fn dequeue(&mut self, cpu: CpuId) -> Result<Option<Proposal<TaskId>>, Violation> {
        let mut upcoming = None;
        self.on(cpu).upcoming(|task| {
            upcoming = Some(task);
            false
        });
        let Some(proposal) = self.on(cpu).dequeue() else { return Ok(None) };
        if P::PUBLISHES && upcoming != Some(proposal.task()) {
            return Err(Violation::NotAsPublished(proposal.withdraw()));
        }
        if P::FIFO && !self.ledger.is_first(self.queue_of(cpu), proposal.task()) {
            return Err(Violation::NotFifo(proposal.withdraw()));
        }
        Ok(Some(proposal))
    }

    fn search(&mut self, cpu: CpuId) -> Result<Option<Stolen<TaskId>>, Violation> {
        let Machine { policy, queues, world, ledger, .. } = self;
        let (ledger, cx) = (&*ledger, world.cx(cpu));
        let mut reached = 0;
        let checks = |cpu: CpuId| Checks { ledger, queue: cpu.index() };
        let count = |cpu| {
            reached += 1;
            checks(cpu)
        };
        let mut victims = OwnedQueues::new(policy, cx, queues, count);
        match Driver::new(&*policy, cx, checks(cpu)).search(&mut victims) {
            SearchResult::Tasks(tasks) => Ok(Some(tasks)),
            SearchResult::Nothing if reached == ATTEMPTS * self.cpus => {
                Err(Violation::EndlessBalance)
            }
            SearchResult::Later(_) | SearchResult::Nothing => Ok(None),
        }
    }

    /// With stale hints, even a work-conserving policy may overlook a task.
    pub(super) fn may_idle(&self, cpu: CpuId) -> Step {
        let must_run = P::WORK_CONSERVING && !self.stale && self.ledger.first_waiting().is_some();
        if must_run { Err(Violation::Idle(cpu)) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self, cpu: CpuId, how: Leave) -> Step {
        let Some(Run { task, .. }) = self.ledger.running[cpu.index()].take() else {
            return Ok(());
        };
        match how {
            Leave::Yield => self.enqueue(cpu, task, Enqueue::Yield),
            Leave::Block => {
                self.on(cpu).block(task);
                self.ledger.set(task, TaskLocation::Asleep);
            }
            Leave::Exit => {
                self.on(cpu).exit(task);
                self.ledger.set(task, TaskLocation::Free);
            }
        }
        Ok(())
    }

    /// Asks once whether to preempt; obeys if another task waits (Aspen, section 3.2).
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
                Resched::After(more) | Resched::Until(more) => {
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
        let answer = self.on(cpu).tick(task, ran);
        let quantum = self.policy.quantum();
        match answer {
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
