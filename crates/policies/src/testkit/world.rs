//! What a policy sees of the model: its slots, and hints that may be wrong.

use core::cell::Cell;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, Cx, Host, Ns, Rng, TaskSlot, Topology};
use std::vec::Vec;

/// The maximum number of tasks at a time.
pub(super) const TASKS: usize = 16;

pub(super) struct World<T> {
    pub slots: Vec<TaskSlot<T>>,
    pub view: View,
    rng: Rng,
}

/// What the hook publishes, separate from the truth.
pub(super) struct View {
    pub now: Ns,
    cpus: Vec<CpuInfo>,
    pub waiting: Vec<usize>,
    pub idle: Vec<bool>,
    pub asked_for_waits: Cell<bool>,
    turns: TurnTime,
}

impl<T: Default> World<T> {
    pub fn new(cpus: usize) -> World<T> {
        let view = View {
            now: Ns::ZERO,
            cpus: (0..cpus as u16).map(info).collect(),
            waiting: Vec::from_iter((0..cpus).map(|_| 0)),
            idle: Vec::from_iter((0..cpus).map(|_| true)),
            asked_for_waits: Cell::new(false),
            turns: TurnTime::default(),
        };
        World { slots: (0..TASKS).map(|_| TaskSlot::default()).collect(), view, rng: Rng::new(1) }
    }

    pub fn cx(&self, cpu: CpuId) -> Cx<'_, T> {
        Cx::new(cpu, &self.slots, &self.view, &self.rng)
    }
}

/// Two hyperthreads per core, two cores per cache and node: every distance occurs except 3.
fn info(cpu: u16) -> CpuInfo {
    CpuInfo { os_id: u32::from(cpu), core: cpu / 2, llc: cpu / 4, node: cpu / 4 }
}

impl Host for View {
    fn now(&self) -> Ns {
        self.now
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.cpus)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        self.waiting[cpu.index()]
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle[cpu.index()]
    }

    fn any_idle(&self) -> bool {
        self.idle.contains(&true)
    }

    fn turns(&self, _: CpuId) -> &TurnTime {
        &self.turns
    }

    /// A microsecond for each task ahead.
    fn expected_wait(&self, cpu: CpuId) -> Ns {
        self.asked_for_waits.set(true);
        Ns::from_us((self.queue_len(cpu) + usize::from(!self.is_idle(cpu))) as u64)
    }
}
