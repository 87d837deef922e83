//! The run queue of `core-edf`: waiting and running threads of each physical core.

use super::Vcpu;
use heddle_core::{Class, CpuId, CpuSet, Cx, Ns, TaskId, TaskTree};

/// The view on which the policy decides.
pub type View<'a> = Cx<'a, Vcpu>;

/// The key of a thread that runs beyond its budget: later than any deadline.
pub const BEYOND: u64 = 1 << 62;
/// The largest key of a waiting thread.
pub const ALL: u64 = (1 << 63) - 1;
/// The bits of a key below the VM.
const PLACE_BITS: u32 = 55;

/// A VM's waiting threads are adjacent, in the order of `place`.
pub fn key(vm: Class, place: u64) -> u64 {
    u64::from(vm.0) << PLACE_BITS | place & ((1 << PLACE_BITS) - 1)
}

/// The VM of `task`.
pub fn vm(cx: &View<'_>, task: TaskId) -> Class {
    cx.task(task).attrs().class
}

fn first_of(tree: &TaskTree, cx: &View<'_>, of: Class) -> Option<TaskId> {
    tree.first_from(cx.tasks, key(of, 0)).filter(|&task| vm(cx, task) == of)
}

/// One physical core.
#[derive(Debug, Default)]
pub struct Core {
    /// Waiting threads with budget left, by VM and deadline.
    ready: TaskTree,
    /// Waiting threads without, by VM and turn.
    pub spent: TaskTree,
    /// Running threads, by deadline, or [`BEYOND`].
    pub running: TaskTree,
    /// The VM whose turn it is, or was last.
    pub vm: Class,
    /// Until when, if only spare time is left.
    pub until: Ns,
    /// How many turns have been given out.
    pub turns: u64,
    /// How many threads call this core home.
    homes: u32,
}

impl Core {
    /// Returns the waiting set of threads with budget left, or of those without.
    pub fn tree(&mut self, is_ready: bool) -> &mut TaskTree {
        if is_ready { &mut self.ready } else { &mut self.spent }
    }

    /// Returns whether any thread waits.
    pub fn waits(&self) -> bool {
        !(self.ready.is_empty() && self.spent.is_empty())
    }

    /// Among threads without budget, returns the first of the next VM in turn.
    fn next_in_turn(&self, cx: &View<'_>) -> Option<TaskId> {
        let others = self.spent.first_from(cx.tasks, key(self.vm, 0) + (1 << PLACE_BITS));
        others.or(self.spent.first())
    }

    /// Returns what to run if the core is idle.
    pub fn best(&self, cx: &View<'_>) -> Option<TaskId> {
        self.ready.least_until(cx.tasks, ALL).or_else(|| self.next_in_turn(cx))
    }

    /// Returns what to run next to the running threads; nothing while the core drains.
    pub fn sibling(&self, cx: &View<'_>, now: Ns) -> Option<TaskId> {
        if self.must_drain(cx, now) {
            return None;
        }
        first_of(&self.ready, cx, self.vm).or_else(|| first_of(&self.spent, cx, self.vm))
    }

    /// Returns whether another VM should get the core: one of its waiting threads has an earlier
    /// deadline than all running ones, or all running threads are beyond their budgets and had their
    /// turn.
    fn must_drain(&self, cx: &View<'_>, now: Ns) -> bool {
        let Some(runs) = self.running.first_key(cx.tasks) else { return false };
        let other = |task: TaskId| vm(cx, task) != self.vm;
        match self.ready.least_until(cx.tasks, ALL) {
            Some(task) if cx.task(task).policy.deadline.get().0 < runs => other(task),
            _ => runs == BEYOND && now >= self.until && self.next_in_turn(cx).is_some_and(other),
        }
    }

    /// Returns whether a thread that runs under key `runs` must yield, to another VM or to its own.
    pub fn must_yield(&self, cx: &View<'_>, runs: u64, now: Ns) -> bool {
        let earlier = |task: TaskId| cx.task(task).policy.deadline.get().0 < runs;
        self.must_drain(cx, now) || first_of(&self.ready, cx, self.vm).is_some_and(earlier)
    }
}

/// All cores, each under the number of its first CPU.
#[derive(Debug)]
pub struct Cores {
    pub cores: [Core; CpuSet::CAPACITY],
    /// The first CPU of each CPU's core, plus one; zero until it is looked up.
    first: [u16; CpuSet::CAPACITY],
    /// The cores on which threads wait.
    pub waiting: CpuSet,
    /// How many tasks wait.
    pub len: usize,
}

impl Default for Cores {
    fn default() -> Self {
        Cores {
            cores: core::array::from_fn(|_| Core::default()),
            first: [0; CpuSet::CAPACITY],
            waiting: CpuSet::EMPTY,
            len: 0,
        }
    }
}

impl Cores {
    /// Returns the core of `cpu`, by the number of its first CPU. Reads the topology once per CPU.
    pub fn core_of(&mut self, cx: &View<'_>, cpu: CpuId) -> usize {
        let first = &mut self.first[cpu.index()];
        if *first == 0 {
            let topology = cx.topology();
            let is_sibling = |other: &CpuId| topology.distance(cpu, *other) <= 1;
            *first = topology.cpus().find(is_sibling).unwrap_or(cpu).0 + 1;
        }
        usize::from(*first) - 1
    }

    /// Returns the core with the fewest threads; of equals, the one nearest to the asking CPU.
    pub fn least_loaded(&mut self, cx: &View<'_>) -> usize {
        let mut least = (u32::MAX, u32::MAX, 0);
        for cpu in cx.topology().cpus() {
            if self.core_of(cx, cpu) == cpu.index() {
                let far = cx.topology().distance(cx.cpu, cpu);
                least = least.min((self.cores[cpu.index()].homes, far, cpu.index()));
            }
        }
        least.2
    }

    /// Gives `task` another home, or none.
    pub fn set_home(&mut self, cx: &View<'_>, task: TaskId, core: Option<usize>) {
        let home = &cx.task(task).policy.home;
        if let Some(old) = (home.get() as usize).checked_sub(1) {
            self.cores[old].homes -= 1;
        }
        if let Some(new) = core {
            self.cores[new].homes += 1;
        }
        home.set(core.map_or(0, |core| core as u64 + 1));
    }

    /// Returns the core from which `core`, which has no threads, may take one: one of the same node,
    /// else the next.
    pub fn spill_from(&self, cx: &View<'_>, core: usize) -> Option<usize> {
        let node = |cpu: CpuId| cx.topology().cpu(cpu).node;
        let here = CpuId(core as u16);
        let near = self.waiting.iter().find(|&other| node(other) == node(here));
        near.or_else(|| self.waiting.next_from(here)).map(CpuId::index)
    }
}
