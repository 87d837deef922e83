//! Finds the next event.

use heddle_core::Ns;
use std::hint::select_unpredictable;

/// The next event of each of a fixed number of sources.
///
/// Every source (a CPU, the arrivals, a dispatcher) has at most one pending event, so there is nothing
/// to allocate and nothing to cancel: setting a source's instant replaces the old one. At equal instants the lower
/// source comes first.
///
/// The first [`EXTERNAL`](Timetable::EXTERNAL) sources are few, and one of them, the arrivals, has every other event:
/// they are a list, whose earliest is found by looking at all. The others, the CPUs, are a tournament tree, whose root
/// is the earliest: setting one takes log2(CPUs) steps without a branch to predict.
#[derive(Debug)]
pub(crate) struct Timetable {
    external: [Entry; Timetable::EXTERNAL],
    /// The earliest of them.
    next_external: Entry,
    /// Node 1 is the root, node `i` has the children `2i` and `2i + 1`; the leaves are the second half.
    nodes: Vec<Entry>,
}

/// When a source is due.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    source: u64,
}

impl Entry {
    #[inline]
    fn new(at: Ns, source: usize) -> Entry {
        Entry { at: at.0, source: source as u64 }
    }

    /// Returns the earlier one; of equals, the one with the lower source.
    #[inline]
    fn earlier(self, other: Entry) -> Entry {
        let key = |entry: Entry| u128::from(entry.at) << 64 | u128::from(entry.source);
        select_unpredictable(key(other) < key(self), other, self)
    }
}

impl Timetable {
    /// How many sources are not CPUs.
    pub(crate) const EXTERNAL: usize = 4;

    /// Creates a timetable with nothing due for the external sources and `cpus` more.
    pub(crate) fn new(cpus: usize) -> Timetable {
        let external = std::array::from_fn(|source| Entry::new(Ns::MAX, source));
        let leaves = cpus.next_power_of_two();
        let mut nodes = vec![Entry::new(Ns::MAX, 0); leaves];
        nodes.extend((0..leaves).map(|cpu| Entry::new(Ns::MAX, Timetable::EXTERNAL + cpu)));
        // Each node holds the leftmost leaf below it: the first of equals.
        for i in (1..leaves).rev() {
            nodes[i] = nodes[2 * i];
        }
        Timetable { external, next_external: external[0], nodes }
    }

    /// Returns the earliest instant and its source.
    #[inline]
    pub(crate) fn next(&self) -> (Ns, usize) {
        let next = self.next_external.earlier(self.nodes[1]);
        (Ns(next.at), next.source as usize)
    }

    /// Sets when the next event of `source` is due; [`Ns::MAX`] for none.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Ns) {
        let entry = Entry::new(at, source);
        if source < Timetable::EXTERNAL {
            self.external[source] = entry;
            self.next_external = self.external.into_iter().fold(entry, Entry::earlier);
            return;
        }
        let leaf = self.nodes.len() / 2 + source - Timetable::EXTERNAL;
        climb(&mut self.nodes, leaf, entry);
    }
}

/// Enters `entry` at `leaf` and lets it compete up to the root.
///
/// Each depth has its own code. In a loop of unknown length the compiler makes a branch of the conditional move, and
/// which entry is earlier is chance: with it a run on 20 CPUs takes a fifth longer, on 256 a half.
fn climb(nodes: &mut [Entry], leaf: usize, entry: Entry) {
    match nodes.len().ilog2() - 1 {
        0 => climb_levels::<0>(nodes, leaf, entry),
        1 => climb_levels::<1>(nodes, leaf, entry),
        2 => climb_levels::<2>(nodes, leaf, entry),
        3 => climb_levels::<3>(nodes, leaf, entry),
        4 => climb_levels::<4>(nodes, leaf, entry),
        5 => climb_levels::<5>(nodes, leaf, entry),
        6 => climb_levels::<6>(nodes, leaf, entry),
        7 => climb_levels::<7>(nodes, leaf, entry),
        8 => climb_levels::<8>(nodes, leaf, entry),
        9 => climb_levels::<9>(nodes, leaf, entry),
        _ => climb_levels::<10>(nodes, leaf, entry),
    }
}

#[inline(never)]
fn climb_levels<const LEVELS: usize>(nodes: &mut [Entry], leaf: usize, entry: Entry) {
    let (mut i, mut earliest) = (leaf, entry);
    nodes[i] = entry;
    for _ in 0..LEVELS {
        earliest = earliest.earlier(nodes[i ^ 1]);
        i /= 2;
        nodes[i] = earliest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The root equals the least entry of a plain table, for any sequence of settings.
        #[test]
        fn the_root_is_the_earliest(
            cpus in 1..40usize,
            sets in prop::collection::vec((0..44usize, prop_oneof![0..20u64, Just(u64::MAX)]), 0..200),
        ) {
            let sources = Timetable::EXTERNAL + cpus;
            let (mut timetable, mut table) = (Timetable::new(cpus), vec![Ns::MAX; sources]);
            for (source, at) in sets {
                let source = source % sources;
                timetable.set(source, Ns(at));
                table[source] = Ns(at);
                let least = (0..sources).min_by_key(|&s| table[s]).unwrap();
                prop_assert_eq!(timetable.next(), (table[least], least));
            }
        }
    }
}
