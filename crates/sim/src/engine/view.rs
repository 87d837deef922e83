//! What a policy sees of the simulated machine.

use crate::machine::Neighbours;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, CpuSet, Host, Model, Ns, Topology};
use std::cell::{Cell, RefCell};

/// The hints, always correct here: they change in the same instant as what they describe.
pub(super) struct View {
    pub now: Ns,
    infos: Vec<CpuInfo>,
    neighbours: Neighbours,
    central: bool,
    /// CPUs without a task that are looking for one.
    pub idle: CpuSet,
    idle_count: usize,
    /// How many tasks wait in each queue (one queue in the central model), and which queues have any.
    waiting: Vec<Cell<usize>>,
    nonempty: RefCell<CpuSet>,
    turns: Vec<TurnTime>,
}

impl View {
    pub fn new(infos: Vec<CpuInfo>, model: Model) -> View {
        let cpus = infos.len();
        View {
            now: Ns::ZERO,
            neighbours: Neighbours::new(Topology::new(&infos)),
            infos,
            central: model == Model::Central,
            idle: CpuSet::first(cpus),
            idle_count: cpus,
            waiting: (0..cpus).map(|_| Cell::new(0)).collect(),
            nonempty: RefCell::new(CpuSet::EMPTY),
            turns: (0..cpus).map(|_| TurnTime::default()).collect(),
        }
    }

    pub fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        if self.idle.contains(cpu) != idle {
            match idle {
                true => self.idle.insert(cpu),
                false => self.idle.remove(cpu),
            }
            self.idle_count = if idle { self.idle_count + 1 } else { self.idle_count - 1 };
        }
    }

    /// `cpu` has a task from `at` on.
    #[inline]
    pub fn turn_begins(&mut self, cpu: CpuId, at: Ns) {
        self.turns[cpu.index()].begin(at, 1);
    }

    /// `cpu` has left its task.
    #[inline]
    pub fn turn_ends(&mut self, cpu: CpuId) {
        self.turns[cpu.index()].end(self.now);
    }

    #[inline]
    pub fn set_waiting(&self, queue: usize, tasks: usize) {
        match (self.waiting[queue].replace(tasks), tasks) {
            (0, 1..) => self.nonempty.borrow_mut().insert(CpuId(queue as u16)),
            (1.., 0) => self.nonempty.borrow_mut().remove(CpuId(queue as u16)),
            _ => {}
        }
    }

    #[inline]
    pub fn waiting(&self, queue: usize) -> usize {
        self.waiting[queue].get()
    }

    /// Returns the member of `set` nearest to `cpu`.
    pub fn nearest_of(&self, set: &CpuSet, cpu: CpuId) -> Option<CpuId> {
        self.neighbours.nearest(set, cpu, CpuId(0))
    }

    pub fn distance(&self, a: CpuId, b: CpuId) -> u32 {
        self.topology().distance(a, b)
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
        self.waiting[if self.central { 0 } else { cpu.index() }].get()
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

    fn nearest_idle(&self, from: CpuId) -> Option<CpuId> {
        match self.idle_count {
            0 => None,
            _ => self.neighbours.nearest(&self.idle, from, CpuId(0)),
        }
    }

    fn nearest_waiting(&self, from: CpuId, start: CpuId, nth: usize) -> Option<CpuId> {
        let mut left = *self.nonempty.borrow();
        left.remove(from);
        for _ in 0..nth {
            let cpu = self.neighbours.nearest(&left, from, start)?;
            left.remove(cpu);
        }
        self.neighbours.nearest(&left, from, start)
    }
}
