//! The workers of a queue at one time, and the policy over them. A set never changes: when a worker joins or
//! leaves, or the policy changes, a new set replaces it.

use crate::ids::NONE;
use crate::port::Port;
use crate::schedule::Schedule;
use heddle_core::driver::TurnTime;
use heddle_core::{CpuId, CpuInfo, Host, Ns, Topology};
use heddle_sync::IdleSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// The workers that wait on the queue, by index. A worker's index is that of its run queue.
pub(crate) struct WorkerSet {
    pub epoch: u64,
    pub ports: Box<[Arc<Port>]>,
    pub infos: Box<[CpuInfo]>,
    pub schedule: Box<dyn Schedule>,
    /// The indices of parked workers.
    pub idle: IdleSet,
    /// The worker nearest to each of the system's CPUs, and the CPU of each worker; both change with
    /// [`WorkerSet::follow_cpus`].
    nearest: Box<[AtomicU16]>,
    cpus: Box<[AtomicU32]>,
    by_port: Lookup,
}

/// Maps the numbers of ports, which grow without end, to indices in constant time: an open-addressing table
/// of at least twice as many entries.
struct Lookup(Box<[(u32, u16)]>);

impl Lookup {
    fn new(ports: &[Arc<Port>]) -> Lookup {
        let places = (2 * ports.len()).next_power_of_two();
        let mut table = vec![(NONE, 0); places].into_boxed_slice();
        for (index, port) in ports.iter().enumerate() {
            let free = Self::from(port.number, places).find(|&at| table[at].0 == NONE);
            free.into_iter().for_each(|at| table[at] = (port.number, index as u16));
        }
        Lookup(table)
    }

    /// Numbers are consecutive, so they spread by themselves.
    fn from(number: u32, places: usize) -> impl Iterator<Item = usize> {
        (number as usize..).take(places).map(move |at| at & (places - 1))
    }

    fn get(&self, number: u32) -> Option<usize> {
        let mut places = Self::from(number, self.0.len()).map(|at| self.0[at]);
        let (found, index) = places.find(|&(port, _)| port == number || port == NONE)?;
        (found != NONE).then_some(usize::from(index))
    }
}

impl WorkerSet {
    pub fn new(epoch: u64, ports: Vec<Arc<Port>>, schedule: Box<dyn Schedule>) -> WorkerSet {
        let (infos, by_port) = (infos(&ports), Lookup::new(&ports));
        let nearest = nearest(&infos).map(AtomicU16::new).collect();
        let cpus = infos.iter().map(|info| AtomicU32::new(info.os_id)).collect();
        WorkerSet {
            epoch,
            idle: IdleSet::new(ports.len()),
            ports: ports.into(),
            infos,
            schedule,
            nearest,
            cpus,
            by_port,
        }
    }

    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns the index of a port.
    pub fn index_of(&self, port: u32) -> Option<usize> {
        self.by_port.get(port)
    }

    /// Returns the index of the worker nearest to a CPU of the system: `mine` if that is as near. Where several
    /// workers share a CPU, another one of them would have to be woken, and is no nearer.
    pub fn nearest_to(&self, os_cpu: u32, mine: Option<usize>) -> Option<usize> {
        let index = usize::from(self.nearest.get(os_cpu as usize)?.load(Ordering::Relaxed));
        let cpu = |index: usize| self.cpus[index].load(Ordering::Relaxed);
        Some(mine.filter(|&mine| cpu(mine) == cpu(index)).unwrap_or(index))
    }

    /// The CPUs on which workers run have changed: a connection's events go to the worker that is near its
    /// packets now. What policies see of the topology follows with the next set.
    pub fn follow_cpus(&self) {
        let infos = infos(&self.ports);
        for (now, info) in self.cpus.iter().zip(&infos) {
            now.store(info.os_id, Ordering::Relaxed);
        }
        for (now, index) in self.nearest.iter().zip(nearest(&infos)) {
            now.store(index, Ordering::Relaxed);
        }
    }

    /// Wakes the worker at `index` if it is parked. The caller has put something where that worker looks.
    pub fn wake(&self, index: usize) -> bool {
        // See `IdleSet`: the write comes before the look at the set.
        fence(Ordering::SeqCst);
        let is_mine = self.idle.unmark(index);
        if is_mine {
            self.ports[index].epoll.ring();
        }
        is_mine
    }

    /// Called after putting an event into the run queue at `index`. Wakes its worker or, if that is busy and
    /// others may take the event, a parked one. Returns whether it woke such another worker.
    pub fn notify(&self, index: usize) -> bool {
        let is_busy = !self.wake(index);
        is_busy && !self.idle.is_empty() && self.schedule.kind().is_shared && self.wake_any()
    }

    /// Wakes any parked worker.
    pub fn wake_any(&self) -> bool {
        let index = self.idle.take_any();
        if let Some(index) = index {
            self.ports[index].epoll.ring();
        }
        index.is_some()
    }
}

/// Where the workers run.
fn infos(ports: &[Arc<Port>]) -> Box<[CpuInfo]> {
    ports.iter().map(|port| *port.cpu.lock().unwrap()).collect()
}

/// For each CPU of the system, the worker that shares most with it; equals take turns.
fn nearest(infos: &[CpuInfo]) -> impl Iterator<Item = u16> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let highest = infos.iter().map(|info| info.os_id as usize + 1).max().unwrap_or(0);
    let end = if infos.is_empty() { 0 } else { highest.max(cpus) };
    (0..end as u32).map(|cpu| nearest_to(infos, cpu))
}

fn nearest_to(infos: &[CpuInfo], os_cpu: u32) -> u16 {
    let here = heddle_sys::topology::cpu_info(os_cpu);
    let n = infos.len();
    let around = (0..n).map(|i| (i + os_cpu as usize) % n);
    let far = |&index: &usize| {
        let pair = [here, infos[index]];
        if infos[index].os_id == os_cpu {
            0
        } else {
            1 + Topology::new(&pair).distance(CpuId(0), CpuId(1))
        }
    };
    around.min_by_key(far).unwrap_or(0) as u16
}

/// What policies see of a worker set.
pub(crate) struct View<'a>(pub &'a WorkerSet);

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
    use crate::schedule::{Caller, Entry, Quota, make};
    use crate::telemetry::WorkerCounts;
    use heddle_core::{Enqueue, Rng};
    use proptest::prelude::*;

    proptest! {
        /// Whatever numbers are left after workers have come and gone.
        #[test]
        fn a_port_is_found_at_its_index_only(numbers in proptest::collection::btree_set(0u32..1000, 0..60)) {
            let port = |&number: &u32| Arc::new(Port::new(number, WorkerCounts::default()).unwrap());
            let ports: Vec<_> = numbers.iter().map(port).collect();
            let lookup = Lookup::new(&ports);
            for number in 0..1000 {
                prop_assert_eq!(lookup.get(number), numbers.iter().position(|&n| n == number));
            }
            prop_assert_eq!(lookup.get(NONE), None);
        }
    }

    #[test]
    fn connections_follow_a_worker_to_another_cpu() {
        let ports: Vec<_> =
            (0..2).map(|n| Arc::new(Port::new(n, WorkerCounts::default()).unwrap())).collect();
        let move_to = |port: usize, os_id| ports[port].cpu.lock().unwrap().os_id = os_id;
        move_to(0, 0);
        move_to(1, 1);
        let schedule = make("cpu-affinity", 8, 2).unwrap().unwrap();
        let workers = WorkerSet::new(0, ports.clone(), schedule);
        let nearest = |mine| (workers.nearest_to(0, mine), workers.nearest_to(1, mine));
        assert_eq!((nearest(None), nearest(Some(1))), ((Some(0), Some(1)), (Some(0), Some(1))));
        move_to(0, 1);
        move_to(1, 0);
        workers.follow_cpus();
        assert_eq!((nearest(None), nearest(Some(1))), ((Some(1), Some(0)), (Some(1), Some(0))));
        // Both on one CPU: neither is nearer.
        move_to(0, 0);
        workers.follow_cpus();
        assert_eq!(nearest(Some(0)), (Some(0), Some(0)));
        assert_eq!(nearest(Some(1)), (Some(1), Some(1)));
    }

    #[test]
    fn the_share_limits_high_priority_and_leaves_room_for_normal() {
        let schedule = make("hybrid", 16, 1).unwrap().unwrap();
        let workers = WorkerSet::new(0, Vec::new(), make("fifo", 1, 0).unwrap().unwrap());
        let (view, rng) = (View(&workers), Rng::new(1));
        let caller = Caller { index: 0, host: &view, rng: &rng };
        let entries: Vec<_> = (0..8).map(|event| Entry { event, high: event >= 4 }).collect();
        schedule.enqueue(&caller, 0, &entries, Enqueue::Wakeup).unwrap();
        let mut out = Vec::new();
        schedule.take(&caller, Quota { all: 4, high: 2 }, &mut out);
        assert_eq!(out, [4, 5, 0, 1]);
        out.clear();
        schedule.take(&caller, Quota { all: 4, high: 4 }, &mut out);
        assert_eq!(out, [6, 7, 2, 3]);
    }
}
