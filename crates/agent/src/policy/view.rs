//! The enclave as a policy sees it.

use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, CpuSet, Host, Model, Ns, Topology};
use std::cell::{Cell, RefCell};

/// The hints: true when a round begins, and updated with each of its decisions.
pub(super) struct View {
    /// The time at which the round, or its last step, began.
    pub now: Ns,
    infos: Vec<CpuInfo>,
    is_central: bool,
    /// CPUs without an assignment and without an occupant above managed threads.
    idle: CpuSet,
    idle_count: usize,
    waiting: Vec<Cell<usize>>,
    total: Cell<usize>,
    turns: Vec<TurnTime>,
    /// CPUs whose queue, assignment or waiting threads have changed since the last look.
    touched: RefCell<CpuSet>,
}

impl View {
    pub fn new(infos: Vec<CpuInfo>, model: Model) -> View {
        let cpus = infos.len().max(1);
        let waiting = (0..cpus).map(|_| Cell::new(0)).collect();
        let turns = (0..cpus).map(|_| TurnTime::default()).collect();
        let is_central = model == Model::Central;
        let (now, idle) = (Ns::ZERO, CpuSet::EMPTY);
        View {
            now,
            infos,
            is_central,
            idle,
            idle_count: 0,
            waiting,
            total: Cell::new(0),
            turns,
            touched: RefCell::default(),
        }
    }

    pub fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        if self.idle.contains(cpu) == idle {
            return;
        }
        match idle {
            true => self.idle.insert(cpu),
            false => self.idle.remove(cpu),
        }
        self.idle_count = if idle { self.idle_count + 1 } else { self.idle_count - 1 };
    }

    pub fn set_waiting(&self, queue: usize, tasks: usize) {
        self.total.set(self.total.get() + tasks - self.waiting[queue].replace(tasks));
        self.touch(CpuId(queue as u16));
    }

    /// Notes that what could be offered to `cpu` may have changed.
    pub fn touch(&self, cpu: CpuId) {
        self.touched.borrow_mut().insert(cpu);
    }

    /// Returns the CPUs that were touched since the last call.
    pub fn take_touched(&self) -> CpuSet {
        self.touched.take()
    }

    pub fn waiting(&self, queue: usize) -> usize {
        self.waiting[queue].get()
    }

    /// Returns how many threads wait in all queues.
    pub fn total(&self) -> usize {
        self.total.get()
    }

    pub fn idle(&self) -> CpuSet {
        self.idle
    }

    /// Whether two CPUs belong to the same NUMA node.
    pub fn share_node(&self, a: CpuId, b: CpuId) -> bool {
        self.infos[a.index()].node == self.infos[b.index()].node
    }

    /// Returns the member of `set` that is nearest to `cpu`.
    pub fn nearest_of(&self, set: &CpuSet, cpu: CpuId) -> Option<CpuId> {
        set.iter().min_by_key(|&other| self.topology().distance(cpu, other))
    }
}

impl Host for View {
    fn now(&self) -> Ns {
        self.now
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.infos)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        self.waiting[if self.is_central { 0 } else { cpu.index() }].get()
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle.contains(cpu)
    }

    fn any_idle(&self) -> bool {
        self.idle_count > 0
    }

    fn turns(&self, cpu: CpuId) -> &TurnTime {
        &self.turns[cpu.index()]
    }
}
