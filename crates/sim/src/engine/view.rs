//! What a policy sees of the simulated machine.

use crate::machine::Neighbours;
use heddle_core::{CpuId, CpuInfo, CpuSet, Host, Model, Ns, Topology};

/// The hints, always true here: they change in the same instant as what they tell of.
pub(super) struct View {
    pub now: Ns,
    infos: Vec<CpuInfo>,
    neighbours: Neighbours,
    central: bool,
    /// CPUs without a task that look for one.
    pub idle: CpuSet,
    idle_count: usize,
    /// How many tasks wait in each queue (in the central model in the only one), and in which some do.
    waiting: Vec<usize>,
    nonempty: CpuSet,
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
            waiting: vec![0; cpus],
            nonempty: CpuSet::EMPTY,
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

    #[inline]
    pub fn set_waiting(&mut self, queue: usize, tasks: usize) {
        let before = std::mem::replace(&mut self.waiting[queue], tasks);
        match (before, tasks) {
            (0, 1..) => self.nonempty.insert(CpuId(queue as u16)),
            (1.., 0) => self.nonempty.remove(CpuId(queue as u16)),
            _ => {}
        }
    }

    #[inline]
    pub fn waiting(&self, queue: usize) -> usize {
        self.waiting[queue]
    }

    /// The member of `set` that is nearest to `cpu`.
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
        self.waiting[if self.central { 0 } else { cpu.index() }]
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle.contains(cpu)
    }

    fn any_idle(&self) -> bool {
        self.idle_count > 0
    }

    fn nearest_idle(&self, from: CpuId) -> Option<CpuId> {
        match self.idle_count {
            0 => None,
            _ => self.neighbours.nearest(&self.idle, from, CpuId(0)),
        }
    }

    fn nearest_waiting(&self, from: CpuId, start: CpuId, nth: usize) -> Option<CpuId> {
        let mut left = self.nonempty;
        left.remove(from);
        for _ in 0..nth {
            let cpu = self.neighbours.nearest(&left, from, start)?;
            left.remove(cpu);
        }
        self.neighbours.nearest(&left, from, start)
    }
}
