//! CPUs, sets of them, and the distances between them.

use core::fmt;

/// A CPU as numbered by this layer: 0, 1, ... of the CPUs given to the policy, which need not be the operating system's
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The maximum number of CPUs that a policy can serve.
    pub const CAPACITY: usize = 1024;

    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet { words: [0; CpuSet::CAPACITY / 64] };

    /// Returns CPUs 0 to `n - 1`.
    ///
    /// # Panics
    /// If `n` exceeds [`CpuSet::CAPACITY`].
    pub fn first(n: usize) -> CpuSet {
        assert!(n <= CpuSet::CAPACITY, "a set of {n} CPUs; it holds {} at most", CpuSet::CAPACITY);
        let below = |bit: usize| match n.saturating_sub(bit) {
            left @ 0..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        CpuSet { words: core::array::from_fn(|word| below(64 * word)) }
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }

    /// Removes `cpu`.
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] >> (cpu.index() % 64) & 1 == 1
    }

    /// Returns the number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// Returns the members in increasing order, in one step per member plus one per 64 CPUs.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let rest =
                core::iter::successors(Some(word), |&left| Some(left & left.wrapping_sub(1)));
            rest.take_while(|&left| left != 0)
                .map(move |left| CpuId((64 * at) as u16 + left.trailing_zeros() as u16))
        })
    }

    /// Returns the first member at or after `from`, else the first of all.
    #[inline]
    pub fn next_from(&self, from: CpuId) -> Option<CpuId> {
        let (word, bit) = (from.index() / 64, from.index() % 64);
        let here = self.words[word] & (u64::MAX << bit);
        let at = |at: usize, word: u64| CpuId((64 * at) as u16 + word.trailing_zeros() as u16);
        if here != 0 {
            return Some(at(word, here));
        }
        let after = (word + 1..self.words.len()).chain(0..=word);
        after.map(|i| (i, self.words[i])).find(|&(_, word)| word != 0).map(|(i, word)| at(i, word))
    }

    /// Returns the members of both sets.
    #[inline]
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] & other.words[i]) }
    }

    /// Returns the members that are not in `other`.
    #[inline]
    pub fn minus(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }
}

/// The location of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// The operating system's number for it.
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
    /// Returns a topology over `cpus`, whose positions are their [`CpuId`]s.
    pub const fn new(cpus: &'a [CpuInfo]) -> Self {
        Topology { cpus }
    }

    /// Returns the number of CPUs.
    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    /// Returns whether there is no CPU.
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }

    /// Returns the location of `cpu`.
    pub fn cpu(&self, cpu: CpuId) -> &CpuInfo {
        &self.cpus[cpu.index()]
    }

    /// Returns all CPUs in increasing order.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.cpus.len() as u16).map(CpuId)
    }

    /// The largest possible distance.
    pub const FARTHEST: u32 = 4;

    /// Returns 0 for the same CPU, 1 for a sibling hyperthread, 2 for the same last-level cache, 3 for the same node,
    /// else 4.
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
        set.insert(CpuId(1023));
        set.remove(CpuId(1));
        assert!(set.iter().eq([CpuId(0), CpuId(2), CpuId(1023)]));
        assert_eq!((set.len(), set.contains(CpuId(1)), set.is_empty()), (3, false, false));
    }

    #[test]
    fn the_first_sets_and_what_is_common() {
        for n in [0, 1, 63, 64, 65, 1024] {
            let set = CpuSet::first(n);
            assert!(set.iter().eq((0..n as u16).map(CpuId)), "{n}");
        }
        let (ten, six) = (CpuSet::first(10), CpuSet::first(6));
        assert_eq!(ten.and(&six), six);
        assert!(ten.minus(&six).iter().eq((6..10).map(CpuId)));
    }

    #[test]
    fn the_next_member_is_found_around_the_end() {
        let mut set = CpuSet::EMPTY;
        assert_eq!(set.next_from(CpuId(5)), None);
        [3, 70, 1023].into_iter().for_each(|cpu| set.insert(CpuId(cpu)));
        for (from, next) in [(0, 3), (3, 3), (4, 70), (71, 1023)] {
            assert_eq!(set.next_from(CpuId(from)), Some(CpuId(next)));
        }
        set.remove(CpuId(1023));
        assert_eq!(set.next_from(CpuId(71)), Some(CpuId(3)));
        assert_eq!(set.next_from(CpuId(1023)), Some(CpuId(3)));
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
