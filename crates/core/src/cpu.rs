//! CPUs, sets of them, and how near they are to each other.

use core::fmt;

/// A CPU as the layer counts them: 0, 1, ... of the CPUs that the policy was given, which need not be the
/// numbers of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u16);

impl CpuId {
    /// The index into per-CPU tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

/// A set of up to [`CpuSet::CAPACITY`] CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; CpuSet::CAPACITY / 64],
}

impl CpuSet {
    /// The most CPUs that one policy can serve.
    pub const CAPACITY: usize = 512;

    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet { words: [0; CpuSet::CAPACITY / 64] };

    /// CPUs 0 to `n - 1`.
    ///
    /// # Panics
    /// If `n` exceeds [`CpuSet::CAPACITY`].
    pub fn first(n: usize) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for i in 0..n {
            set.insert(CpuId(i as u16));
        }
        set
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] >> (cpu.index() % 64) & 1 == 1
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// The members in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        (0..CpuSet::CAPACITY as u16).map(CpuId).filter(|&c| self.contains(c))
    }
}

/// Where one CPU sits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// The number that the operating system gives it.
    pub os_id: u32,
    /// NUMA node.
    pub node: u16,
    /// Last-level cache (a CCX on AMD); CPUs with the same number share it.
    pub llc: u16,
    /// Physical core; CPUs with the same number are hyperthreads of each other.
    pub core: u16,
}

/// The CPUs of a policy and their distances.
#[derive(Clone, Copy, Debug)]
pub struct Topology<'a> {
    cpus: &'a [CpuInfo],
}

impl<'a> Topology<'a> {
    /// A topology over `cpus`; their position is their [`CpuId`].
    pub const fn new(cpus: &'a [CpuInfo]) -> Self {
        Topology { cpus }
    }

    /// How many CPUs there are.
    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    /// Whether there is no CPU.
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }

    /// Where `cpu` sits.
    pub fn cpu(&self, cpu: CpuId) -> &CpuInfo {
        &self.cpus[cpu.index()]
    }

    /// 0 the same CPU, 1 a sibling hyperthread, 2 the same last-level cache, 3 the same node, 4 elsewhere.
    pub fn distance(&self, a: CpuId, b: CpuId) -> u32 {
        let (x, y) = (self.cpu(a), self.cpu(b));
        match () {
            () if a == b => 0,
            () if x.core == y.core && x.node == y.node => 1,
            () if x.llc == y.llc => 2,
            () if x.node == y.node => 3,
            () => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = CpuSet::first(3);
        set.insert(CpuId(511));
        set.remove(CpuId(1));
        assert!(set.iter().eq([CpuId(0), CpuId(2), CpuId(511)]));
        assert_eq!((set.len(), set.contains(CpuId(1)), set.is_empty()), (3, false, false));
    }

    #[test]
    fn distance_grows_from_thread_to_node() {
        let info = |core, llc, node| CpuInfo { os_id: 0, node, llc, core };
        let cpus = [info(0, 0, 0), info(0, 0, 0), info(1, 0, 0), info(2, 1, 0), info(3, 2, 1)];
        let topo = Topology::new(&cpus);
        for (to, expected) in [0, 1, 2, 3, 4].into_iter().enumerate() {
            assert_eq!(topo.distance(CpuId(0), CpuId(to as u16)), expected);
        }
    }
}
