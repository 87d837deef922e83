//! Finds the next event.

use heddle_core::Ns;

/// The next event of each of a fixed number of sources: a tournament tree, whose root is the earliest.
///
/// Every source (a CPU, the arrivals, a dispatcher) has at most one pending event, so there is nothing
/// to allocate and nothing to cancel: setting a source's instant replaces the old one. Reading the
/// earliest takes constant time; setting one takes log2(sources) steps, fewer if the change does not
/// reach the root. At equal instants the lower source comes first.
#[derive(Debug)]
pub(crate) struct Timetable {
    /// Node 1 is the root, node `i` has the children `2i` and `2i + 1`; the leaves are the second half.
    nodes: Vec<(Ns, u32)>,
    leaves: usize,
}

impl Timetable {
    /// Creates a timetable with nothing due.
    pub(crate) fn new(sources: usize) -> Timetable {
        let leaves = sources.next_power_of_two().max(2);
        // Each node holds the leftmost leaf below it: the winner among equals.
        let mut nodes = vec![(Ns::MAX, 0); 2 * leaves];
        for (i, node) in nodes.iter_mut().enumerate().skip(1) {
            let depth_left = leaves.ilog2() - i.ilog2();
            node.1 = ((i << depth_left) - leaves) as u32;
        }
        Timetable { nodes, leaves }
    }

    /// Returns the earliest instant and its source.
    #[inline]
    pub(crate) fn next(&self) -> (Ns, usize) {
        let (at, source) = self.nodes[1];
        (at, source as usize)
    }

    /// Sets when the next event of `source` is due; [`Ns::MAX`] for none.
    #[inline]
    pub(crate) fn set(&mut self, source: usize, at: Ns) {
        let mut i = self.leaves + source;
        self.nodes[i].0 = at;
        while i > 1 {
            i /= 2;
            let (left, right) = (self.nodes[2 * i], self.nodes[2 * i + 1]);
            let winner = if right.0 < left.0 { right } else { left };
            if self.nodes[i] == winner {
                break;
            }
            self.nodes[i] = winner;
        }
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
            sources in 1..40usize,
            sets in prop::collection::vec((0..40usize, prop_oneof![0..20u64, Just(u64::MAX)]), 0..200),
        ) {
            let (mut timetable, mut table) = (Timetable::new(sources), vec![Ns::MAX; sources]);
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
