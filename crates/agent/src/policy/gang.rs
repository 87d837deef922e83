//! Policies whose tasks of different classes never share a physical core ([`Policy::GANG`]; ghOSt, section
//! 4.5).
//!
//! A policy decides at one instant, but a thread leaves its CPU when an interrupt reaches it. Two rules close
//! the gap:
//!
//! - The threads chosen for a core are one all-or-nothing group: if one of them has gone to sleep meanwhile,
//!   its sibling is not committed alone over what runs there.
//! - Nothing is committed to a core while a thread of another class runs on it or is latched to it, except to
//!   the very CPU that this thread leaves by the commit. Such assignments are held until it has left.
//!
//! Both need an enclave of whole cores; CPUs outside the enclave are not seen.

use super::cpus::Stage;
use super::{BACKOFF, Scheduler};
use crate::model::{Group, Transaction};
use heddle_core::{CpuId, CpuSet, Policy, Topology};

/// Returns the first CPU of the core of `cpu`.
fn core_of(topology: &Topology<'_>, cpu: CpuId) -> CpuId {
    topology.cpus().find(|&other| topology.distance(cpu, other) <= 1).unwrap_or(cpu)
}

impl<P: Policy> Scheduler<'_, P> {
    /// Commits `batch` core by core; held transactions stay open. Returns the number that succeeded.
    pub(super) fn commit_cores(&self, batch: &mut [Transaction]) -> usize {
        let topology = heddle_core::Host::topology(&self.view);
        let how = match self.backend.traits().groups {
            true => Group::AllOrNothing,
            false => Group::Each,
        };
        batch.sort_unstable_by_key(|one| core_of(&topology, one.cpu));
        let is_same = |a: &Transaction, b: &Transaction| {
            core_of(&topology, a.cpu) == core_of(&topology, b.cpu)
        };
        let clear = batch.chunk_by_mut(is_same).filter(|core| self.is_clear(&topology, core));
        clear.map(|core| self.backend.commit(core, how)).sum()
    }

    /// Whether no thread of another class than that of `group` is on its core.
    fn is_clear(&self, topology: &Topology<'_>, group: &[Transaction]) -> bool {
        let core = core_of(topology, group[0].cpu);
        let class = self.threads[group[0].thread.index()].class;
        let is_foreign = |&cpu: &CpuId| {
            let word = self.backend.cpu(cpu);
            let mut there = word.current.into_iter().chain(word.latched);
            // A thread in no slot of ours has no class that we know.
            let known = |task: heddle_core::TaskId| self.threads.get(task.index());
            there.any(|task| known(task).is_none_or(|known| known.class != class))
        };
        let siblings = topology.cpus().filter(|&cpu| core_of(topology, cpu) == core);
        let mut foreign = siblings.filter(is_foreign);
        match (foreign.next(), foreign.next()) {
            (None, _) => true,
            (Some(one), None) => group.len() == 1 && group[0].cpu == one,
            _ => false,
        }
    }

    /// Holds the assignment of `cpu` until its core is clear, and preempts the thread that runs on that very
    /// CPU.
    pub(super) fn hold(&mut self, cpu: CpuId) {
        self.force_off(cpu);
        self.chosen.remove(cpu);
        self.held.insert(cpu);
        self.retry_at = self.retry_at.min(self.view.now + BACKOFF);
    }

    /// Makes held assignments that still exist available for the next commit.
    pub(super) fn retry_held(&mut self) {
        let held = std::mem::replace(&mut self.held, CpuSet::EMPTY);
        for cpu in held.iter() {
            if self.cpus[cpu.index()].stage() == Stage::Chosen {
                self.chosen.insert(cpu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scheduler, Settings};
    use crate::Backend;
    use crate::classes::Classes;
    use crate::model::State;
    use crate::model::machine::{Arrival, Machine, ModelEnclave, Spec};
    use heddle_core::{CpuId, CpuInfo, Ns, Rng, TaskId};
    use heddle_policies::CoreEdf;

    const CPUS: u16 = 4;
    const THREADS: usize = 9;

    /// Two cores of two hyperthreads each.
    fn machine() -> Machine {
        let info = |cpu: u16| CpuInfo { os_id: cpu.into(), node: 0, llc: 0, core: cpu / 2 };
        Machine::new((0..CPUS).map(info).collect()).arriving(Arrival::ByHand)
    }

    fn agent(enclave: &ModelEnclave, messages: usize) -> Scheduler<'_, CoreEdf> {
        let rules = ["0=vm0", "1=vm1", "2=vm2"].map(|rule| rule.parse().unwrap()).into();
        let classes = Classes::new(rules).with_names(|tid| Some(format!("vm{}", tid % 3)));
        let settings = Settings { threads: 64, messages, classes, ..Settings::default() };
        let policy = heddle_policies::build("core-edf:period=4ms,budget=1ms,slice=500us").unwrap();
        let mut agent = Scheduler::new(policy, enclave, settings);
        agent.adopt();
        agent
    }

    struct Testbed {
        machine: Machine,
        threads: Vec<TaskId>,
        rng: Rng,
        ran: [usize; THREADS],
        /// How often both hyperthreads of a core ran a thread.
        pairs: usize,
    }

    impl Testbed {
        /// Delivers some of the interrupts in random order, and checks the cores after each.
        fn arrive(&mut self) {
            for _ in 0..self.rng.below(7) {
                self.machine.arrive(CpuId(self.rng.below(CPUS.into()) as u16));
                self.check_cores();
            }
        }

        fn check_cores(&mut self) {
            let vm = |task: TaskId| self.machine.thread(task).tid % 3;
            for core in 0..CPUS / 2 {
                let on = [0, 1].map(|at| self.machine.running(CpuId(core * 2 + at)));
                if let [Some(a), Some(b)] = on {
                    assert_eq!(vm(a), vm(b), "VMs on one core");
                    self.pairs += 1;
                }
                for task in on.into_iter().flatten() {
                    let at = self.threads.iter().position(|&other| other == task).unwrap();
                    self.ran[at] += 1;
                }
            }
        }

        /// Changes the state of a random thread.
        fn happen(&mut self) {
            let task = self.threads[self.rng.below(THREADS)];
            match self.machine.thread(task).state {
                State::Blocked => self.machine.wake(task),
                State::OnCpu if self.rng.below(4) == 0 => self.machine.block(task),
                State::OnCpu if self.rng.below(4) == 0 => self.machine.yield_now(task),
                _ => false,
            };
            self.check_cores();
        }
    }

    #[test]
    fn hyperthreads_of_a_core_never_run_two_virtual_machines_however_late_interrupts_are() {
        for seed in 0..20 {
            let machine = machine();
            let enclave = machine.enclave(Spec::of((0..CPUS).map(CpuId))).unwrap();
            enclave.attach().unwrap();
            let threads = (0..THREADS).map(|_| machine.spawn(enclave.id(), true)).collect();
            let mut agent = agent(&enclave, 1024);
            let (rng, ran) = (Rng::new(seed), [0; THREADS]);
            let mut testbed = Testbed { machine, threads, rng, ran, pairs: 0 };
            for _ in 0..2_000 {
                testbed.happen();
                agent.round();
                testbed.arrive();
                let step = Ns::from_us(testbed.rng.below(300) as u64);
                testbed.machine.set_time(testbed.machine.time() + step);
                testbed.machine.audit().unwrap();
            }
            assert!(testbed.ran.iter().all(|&ran| ran > 100), "seed {seed}: {:?}", testbed.ran);
            assert!(
                testbed.pairs > 500,
                "seed {seed}: both hyperthreads were used {} times",
                testbed.pairs
            );
        }
    }

    #[test]
    fn a_core_is_committed_together_or_not_at_all() {
        let machine = machine();
        let enclave = machine.enclave(Spec::of([CpuId(0), CpuId(1)])).unwrap();
        enclave.attach().unwrap();
        let mut agent = agent(&enclave, 6);
        // The first and the fourth are of one VM. The agent does not read the fourth one's last message in
        // this round.
        let threads: Vec<_> = (0..4).map(|_| machine.spawn(enclave.id(), true)).collect();
        machine.exit(threads[1]);
        machine.exit(threads[2]);
        machine.set_weight(threads[3], 50);
        let round = agent.round();
        let word = enclave.enclave();
        assert_eq!((round.committed, word.failed), (1, 2), "both fail, then the one that may");
    }
}
