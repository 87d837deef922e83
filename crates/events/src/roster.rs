//! The threads of a queue at one time, and the policy over them. A thread that comes or leaves, and another policy, make a new one.

use crate::port::Port;
use crate::schedule::Schedule;
use heddle_core::{CpuId, CpuInfo, Host, Ns, Topology};
use heddle_sys::sync::IdleSet;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Who waits on the queue, by lane.
pub(crate) struct Roster {
    pub epoch: u64,
    pub ports: Box<[Arc<Port>]>,
    pub infos: Box<[CpuInfo]>,
    pub schedule: Box<dyn Schedule>,
    /// Lanes whose threads are parked.
    pub idle: IdleSet,
    /// The lane nearest to each CPU of the system.
    nearest: Box<[u16]>,
}

impl Roster {
    pub fn new(
        epoch: u64,
        ports: Vec<Arc<Port>>,
        infos: Vec<CpuInfo>,
        schedule: Box<dyn Schedule>,
    ) -> Roster {
        let nearest = nearest(&infos);
        Roster {
            epoch,
            ports: ports.into(),
            infos: infos.into(),
            schedule,
            idle: IdleSet::default(),
            nearest,
        }
    }

    pub fn lanes(&self) -> usize {
        self.ports.len()
    }

    /// The lane of a port.
    pub fn lane_of(&self, port: u32) -> Option<usize> {
        self.ports.iter().position(|p| p.number == port)
    }

    /// The lane nearest to a CPU of the system.
    pub fn lane_near(&self, os_cpu: u32) -> Option<usize> {
        self.nearest.get(os_cpu as usize).map(|&lane| usize::from(lane))
    }

    /// Wakes the thread of `lane` if it is parked. The caller has put something where that thread looks.
    pub fn wake(&self, lane: usize) -> bool {
        // See `IdleSet`: what was put there comes before the look at the set.
        fence(Ordering::SeqCst);
        let is_mine = self.idle.unmark(lane);
        if is_mine {
            self.ports[lane].epoll.ring();
        }
        is_mine
    }

    /// Wakes any parked thread.
    pub fn wake_any(&self) -> bool {
        let lane = self.idle.take_any();
        if let Some(lane) = lane {
            self.ports[lane].epoll.ring();
        }
        lane.is_some()
    }
}

/// For each CPU of the system the lane that shares most with it; among equals one after the other.
fn nearest(infos: &[CpuInfo]) -> Box<[u16]> {
    if infos.is_empty() {
        return Box::default();
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let highest = infos.iter().map(|info| info.os_id as usize + 1).max().unwrap_or(1).max(cpus);
    (0..highest as u32).map(|cpu| nearest_to(infos, cpu)).collect()
}

fn nearest_to(infos: &[CpuInfo], os_cpu: u32) -> u16 {
    let here = heddle_sys::topology::cpu_info(os_cpu);
    let n = infos.len();
    let around = (0..n).map(|i| (i + os_cpu as usize) % n);
    let far = |&lane: &usize| {
        let pair = [here, infos[lane]];
        if infos[lane].os_id == os_cpu {
            0
        } else {
            1 + Topology::new(&pair).distance(CpuId(0), CpuId(1))
        }
    };
    around.min_by_key(far).unwrap_or(0) as u16
}

/// What policies see.
pub(crate) struct View<'a>(pub &'a Roster);

impl Host for View<'_> {
    fn now(&self) -> Ns {
        heddle_sys::clock::now()
    }

    fn topology(&self) -> Topology<'_> {
        Topology::new(&self.0.infos)
    }

    fn queue_len(&self, cpu: CpuId) -> usize {
        self.0.schedule.waiting(cpu.index())
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.0.idle.contains(cpu.index())
    }

    fn any_idle(&self) -> bool {
        !self.0.idle.is_empty()
    }

    fn expected_wait(&self, cpu: CpuId) -> Ns {
        let waiting = self.queue_len(cpu);
        self.0.ports[cpu.index()].figures.expected_wait(self.now(), waiting)
    }
}
