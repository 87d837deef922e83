//! The threads of a queue at one time, and the policy over them. A thread that comes or leaves, and another policy, make a new one.

use crate::port::Port;
use crate::schedule::Schedule;
use crate::slot::NONE;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, Host, Ns, Topology};
use heddle_sync::IdleSet;
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
    by_port: Lookup,
}

/// From the numbers of ports, which grow without end, to lanes, in constant time: a table of twice as many places, in which a number
/// stands at the first free one from its own.
struct Lookup(Box<[(u32, u16)]>);

impl Lookup {
    fn new(ports: &[Arc<Port>]) -> Lookup {
        let places = (2 * ports.len()).next_power_of_two();
        let mut table = vec![(NONE, 0); places].into_boxed_slice();
        for (lane, port) in ports.iter().enumerate() {
            let free = Self::from(port.number, places).find(|&at| table[at].0 == NONE);
            free.into_iter().for_each(|at| table[at] = (port.number, lane as u16));
        }
        Lookup(table)
    }

    /// Numbers are given one after the other, so they spread by themselves.
    fn from(number: u32, places: usize) -> impl Iterator<Item = usize> {
        (number as usize..).take(places).map(move |at| at & (places - 1))
    }

    fn get(&self, number: u32) -> Option<usize> {
        let mut places = Self::from(number, self.0.len()).map(|at| self.0[at]);
        let (found, lane) = places.find(|&(port, _)| port == number || port == NONE)?;
        (found != NONE).then_some(usize::from(lane))
    }
}

impl Roster {
    pub fn new(
        epoch: u64,
        ports: Vec<Arc<Port>>,
        infos: Vec<CpuInfo>,
        schedule: Box<dyn Schedule>,
    ) -> Roster {
        let (nearest, by_port) = (nearest(&infos), Lookup::new(&ports));
        Roster {
            epoch,
            idle: IdleSet::new(ports.len()),
            ports: ports.into(),
            infos: infos.into(),
            schedule,
            nearest,
            by_port,
        }
    }

    pub fn lanes(&self) -> usize {
        self.ports.len()
    }

    /// The lane of a port.
    pub fn lane_of(&self, port: u32) -> Option<usize> {
        self.by_port.get(port)
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

    /// The caller has put an event into `lane`: its thread comes for it, or, if that is busy and others may take it, one that is parked.
    /// Whether it is such another one.
    pub fn call(&self, lane: usize) -> bool {
        let is_busy = !self.wake(lane);
        is_busy && !self.idle.is_empty() && self.schedule.kind().is_shared && self.wake_any()
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

    fn turns(&self, cpu: CpuId) -> &TurnTime {
        &self.0.ports[cpu.index()].figures.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever numbers are left after threads have come and gone.
        #[test]
        fn a_port_is_found_in_its_lane_and_no_other(numbers in proptest::collection::btree_set(0u32..1000, 0..60)) {
            let port = |&number: &u32| Arc::new(Port::new(number).unwrap());
            let ports: Vec<_> = numbers.iter().map(port).collect();
            let lookup = Lookup::new(&ports);
            for number in 0..1000 {
                prop_assert_eq!(lookup.get(number), numbers.iter().position(|&n| n == number));
            }
            prop_assert_eq!(lookup.get(NONE), None);
        }
    }
}
