//! The simulated machine: its CPUs and what they share.

use heddle_core::{CpuId, CpuInfo, CpuSet, Topology};
use std::collections::HashMap;

/// The number of CPUs and how they are grouped. Numbers are consecutive: hyperthreads of a core first,
/// then the cores of a last-level cache, then the caches of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs that run tasks, 1 to [`CpuSet::CAPACITY`]; a dispatcher or a timer core comes on top.
    pub cpus: usize,
    /// Hyperthreads per core; 1 means none.
    pub smt: usize,
    /// CPUs per last-level cache; 0 means all of a node.
    pub llc: usize,
    /// CPUs per NUMA node; 0 means all.
    pub node: usize,
}

impl Machine {
    /// Returns a machine with one NUMA node and one cache, without hyperthreads.
    pub fn flat(cpus: usize) -> Machine {
        Machine { cpus, smt: 1, llc: 0, node: 0 }
    }

    /// Returns what is wrong with these numbers, if anything: the field and an explanation.
    pub fn contradiction(&self) -> Option<(&'static str, String)> {
        let Machine { cpus, smt, llc, node } = *self;
        let (node, most) = (if node == 0 { cpus } else { node }, CpuSet::CAPACITY);
        let llc = if llc == 0 { node } else { llc };
        match () {
            () if cpus == 0 => Some(("cpus", "a machine without CPUs; at least 1".into())),
            () if cpus > most => Some(("cpus", format!("{cpus} CPUs; at most {most}"))),
            () if smt == 0 => Some(("smt", "`smt` of 0; 1 means no hyperthreads".into())),
            () if llc % smt != 0 => {
                Some(("llc", format!("a cache of {llc} CPUs does not hold whole cores of {smt}")))
            }
            () if node % llc != 0 => {
                Some(("node", format!("a node of {node} CPUs does not hold whole caches of {llc}")))
            }
            () => None,
        }
    }

    /// Returns the location of each CPU.
    pub fn infos(&self) -> Vec<CpuInfo> {
        let node = if self.node == 0 { self.cpus } else { self.node };
        let llc = if self.llc == 0 { node } else { self.llc };
        let of = |size: usize, cpu: usize| (cpu / size.max(1)) as u16;
        let info = |cpu| CpuInfo {
            os_id: cpu as u32,
            node: of(node, cpu),
            llc: of(llc, cpu),
            core: of(self.smt, cpu),
        };
        (0..self.cpus).map(info).collect()
    }
}

/// For each CPU the CPUs at each distance, so that the nearest of a set is found by set operations: a
/// step per 64 CPUs instead of one per CPU.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Distinct sets, nested: cores, caches, nodes.
    sets: Vec<CpuSet>,
    /// For each CPU the indices of its core, its cache and its node; a set of one CPU or of all is left out, since
    /// looking there first finds nothing that looking everywhere does not.
    of: Vec<Vec<u16>>,
}

impl Neighbours {
    pub(crate) fn new(topology: Topology<'_>) -> Neighbours {
        let cpus = topology.len();
        let mut sets: Vec<CpuSet> = Vec::new();
        let mut of = vec![[0u16; 3]; cpus];
        for level in 0..3 {
            let group = |cpu: CpuId| match (level, topology.cpu(cpu)) {
                (0, info) => (info.node, info.core),
                (1, info) => (0, info.llc),
                (_, info) => (0, info.node),
            };
            let mut seen = HashMap::new();
            for (cpu, of) in topology.cpus().zip(&mut of) {
                of[level] = *seen.entry(group(cpu)).or_insert_with(|| {
                    sets.push(CpuSet::EMPTY);
                    sets.len() as u16 - 1
                });
                sets[usize::from(of[level])].insert(cpu);
            }
        }
        let narrows = |&at: &u16| (2..cpus).contains(&sets[usize::from(at)].len());
        let of = of.into_iter().map(|of| of.into_iter().filter(narrows).collect()).collect();
        Neighbours { sets, of }
    }

    /// Returns the member of `set` nearest to `from`, itself first; of equally near ones, the first
    /// from `start` on.
    pub(crate) fn nearest(&self, set: &CpuSet, from: CpuId, start: CpuId) -> Option<CpuId> {
        if set.contains(from) {
            return Some(from);
        }
        let near = |&at: &u16| set.and(&self.sets[usize::from(at)]).next_from(start);
        self.of[from.index()].iter().find_map(near).or_else(|| set.next_from(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn groups_are_nested() {
        let machine = Machine { cpus: 16, smt: 2, llc: 4, node: 8 };
        assert_eq!(machine.contradiction(), None);
        let infos = machine.infos();
        assert_eq!((infos[5].core, infos[5].llc, infos[5].node), (2, 1, 0));
        assert_eq!(infos[15].node, 1);
    }

    #[test]
    fn impossible_machines_are_refused() {
        let contradiction = |cpus, smt, llc, node| {
            Machine { cpus, smt, llc, node }.contradiction().map(|(_, words)| words)
        };
        assert!(contradiction(0, 1, 0, 0).unwrap().contains("without CPUs"));
        assert!(contradiction(1025, 1, 0, 0).unwrap().contains("at most 1024"));
        assert!(contradiction(8, 2, 3, 0).unwrap().contains("whole cores"));
        assert!(contradiction(8, 1, 3, 4).unwrap().contains("whole caches"));
    }

    proptest! {
        /// The set operations find the same CPU as asking every CPU for its distance.
        #[test]
        fn the_nearest_is_the_nearest(members in prop::collection::vec(0..24u16, 0..6), from in 0..24u16) {
            let infos = Machine { cpus: 24, smt: 2, llc: 4, node: 12 }.infos();
            let topology = Topology::new(&infos);
            let mut set = CpuSet::EMPTY;
            members.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
            let (from, zero) = (CpuId(from), CpuId(0));
            let expected = set.iter().min_by_key(|&cpu| topology.distance(from, cpu));
            prop_assert_eq!(Neighbours::new(topology).nearest(&set, from, zero), expected);
        }
    }
}
