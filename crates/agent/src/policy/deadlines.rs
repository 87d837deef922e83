//! When to look at each CPU again: the earliest in constant time, a change in logarithmic time.

use heddle_core::{CpuId, CpuSet, Ns};

/// A time for each CPU, [`Ns::MAX`] for never.
///
/// A complete binary tree in an array: the leaves are the CPUs, and each inner node has the earlier time of its two
/// children. Node 1 is the root, the children of node `n` are `2n` and `2n + 1`.
pub(super) struct Deadlines {
    tree: Vec<Ns>,
    leaves: usize,
}

impl Deadlines {
    /// Never, for `cpus` CPUs.
    pub fn new(cpus: usize) -> Deadlines {
        let leaves = cpus.next_power_of_two();
        Deadlines { tree: vec![Ns::MAX; 2 * leaves], leaves }
    }

    /// The earliest of all.
    pub fn first(&self) -> Ns {
        self.tree[1]
    }

    /// Sets the time of `cpu`.
    pub fn set(&mut self, cpu: CpuId, at: Ns) {
        let mut node = self.leaves + cpu.index();
        self.tree[node] = at;
        while node > 1 {
            node /= 2;
            let earlier = self.tree[2 * node].min(self.tree[2 * node + 1]);
            if self.tree[node] == earlier {
                return;
            }
            self.tree[node] = earlier;
        }
    }

    /// The CPUs whose time is `now` or earlier. Linear in their number, times the logarithm of all.
    pub fn due(&self, now: Ns) -> CpuSet {
        let mut due = CpuSet::EMPTY;
        if self.first() <= now {
            self.collect(1, now, &mut due);
        }
        due
    }

    fn collect(&self, node: usize, now: Ns, due: &mut CpuSet) {
        if node >= self.leaves {
            return due.insert(CpuId((node - self.leaves) as u16));
        }
        for child in [2 * node, 2 * node + 1] {
            if self.tree[child] <= now {
                self.collect(child, now, due);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_answers_as_a_plain_list_does(
            cpus in 1..70_usize,
            changes in proptest::collection::vec((0..70_u16, 0..50_u64), 0..100),
            now in 0..60_u64,
        ) {
            let mut deadlines = Deadlines::new(cpus);
            let mut plain = vec![Ns::MAX; cpus];
            for (cpu, at) in changes {
                let cpu = CpuId(cpu % cpus as u16);
                // Some become "never" again.
                let at = if at == 0 { Ns::MAX } else { Ns(at) };
                deadlines.set(cpu, at);
                plain[cpu.index()] = at;
                prop_assert_eq!(Some(deadlines.first()), plain.iter().copied().min());
            }
            let due: Vec<usize> = deadlines.due(Ns(now)).iter().map(CpuId::index).collect();
            let expected: Vec<usize> = (0..cpus).filter(|&cpu| plain[cpu] <= Ns(now)).collect();
            prop_assert_eq!(due, expected);
        }
    }
}
