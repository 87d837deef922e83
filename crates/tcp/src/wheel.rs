//! A hierarchical timing wheel (Varghese and Lauck, SOSP 1987, scheme 7): six levels of 64 slots.
//!
//! An entry is an index that the owner chooses, so it is in at most one slot (I4). Arming, moving and cancelling take
//! constant time. An entry fires at the first tick that is not before its deadline, never earlier.

use alloc::vec::Vec;
use heddle_core::Ns;

/// A tick is 2^13 ns, or 8.2 us.
const TICK_BITS: u32 = 13;
const LEVELS: usize = 7;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The furthest tick ahead: beyond a year, a deadline is moved on when it is reached.
const MAX_AHEAD: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;
const NONE: u32 = u32::MAX;
/// The tick of an entry that is not armed.
const IDLE: u64 = u64::MAX;

/// An entry: its neighbours in the slot, and its tick.
#[derive(Clone, Copy, Debug)]
struct Node {
    next: u32,
    previous: u32,
    tick: u64,
}

/// The wheel.
#[derive(Debug)]
pub struct Wheel {
    /// The tick up to which all entries have fired.
    elapsed: u64,
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    nodes: Vec<Node>,
}

impl Wheel {
    /// Bytes of an entry.
    #[cfg(test)]
    pub const ENTRY: usize = size_of::<Node>();

    pub fn new() -> Wheel {
        let heads = [[NONE; SLOTS]; LEVELS];
        Wheel { elapsed: 0, occupied: [0; LEVELS], heads, nodes: Vec::new() }
    }

    /// Arms the entry `index`, or moves it. It is `now`.
    pub fn arm(&mut self, index: u32, now: Ns, deadline: Ns) {
        if self.occupied == [0; LEVELS] {
            // Nothing can be missed by moving on.
            self.elapsed = self.elapsed.max(now.0 >> TICK_BITS);
        }
        if self.nodes.len() <= index as usize {
            self.nodes.resize(index as usize + 1, Node { next: NONE, previous: NONE, tick: IDLE });
        }
        self.cancel(index);
        let tick = deadline.0.div_ceil(1 << TICK_BITS);
        // A tick that has passed fires with the next one.
        let tick = tick.clamp(self.elapsed + 1, self.elapsed + MAX_AHEAD);
        self.link(index, tick);
    }

    /// Disarms the entry `index`, if it is armed.
    pub fn cancel(&mut self, index: u32) {
        let Some(node) = self.nodes.get(index as usize).copied() else { return };
        if node.tick == IDLE {
            return;
        }
        let (level, slot) = self.position(node.tick);
        match node.previous {
            NONE => self.heads[level][slot] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        self.nodes[index as usize].tick = IDLE;
        if self.heads[level][slot] == NONE {
            self.occupied[level] &= !(1 << slot);
        }
    }

    /// The level is that of the highest bit in which the tick differs from now: all ticks of a lower level come first.
    fn position(&self, tick: u64) -> (usize, usize) {
        let differing = (self.elapsed ^ tick) | (SLOTS as u64 - 1);
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        (level, (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS)
    }

    fn link(&mut self, index: u32, tick: u64) {
        let (level, slot) = self.position(tick);
        let next = core::mem::replace(&mut self.heads[level][slot], index);
        if next != NONE {
            self.nodes[next as usize].previous = index;
        }
        self.nodes[index as usize] = Node { next, previous: NONE, tick };
        self.occupied[level] |= 1 << slot;
    }

    /// The first occupied slot: level, slot, and the tick at which it begins.
    fn first(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let shift = SLOT_BITS * level as u32;
        let now = (self.elapsed >> shift) as u32 % SLOTS as u32;
        let ahead = self.occupied[level].rotate_right(now).trailing_zeros();
        let tick = ((self.elapsed >> shift) + u64::from(ahead)) << shift;
        Some((level, (now + ahead) as usize % SLOTS, tick))
    }

    /// When [`expire`](Self::expire) should be called next: never later than the first deadline, rounded up to a tick.
    pub fn next_deadline(&self) -> Option<Ns> {
        self.first().map(|(_, _, tick)| Ns(tick << TICK_BITS))
    }

    /// Disarms and returns an entry whose deadline is not after `now`.
    pub fn expire(&mut self, now: Ns) -> Option<u32> {
        let now = now.0 >> TICK_BITS;
        while let Some((level, slot, tick)) = self.first() {
            if tick > now {
                break;
            }
            let index = self.heads[level][slot];
            if level == 0 {
                self.cancel(index);
                return Some(index);
            }
            self.cascade(level, slot, tick);
        }
        self.elapsed = self.elapsed.max(now);
        None
    }

    /// Distributes the entries of a slot over lower levels.
    fn cascade(&mut self, level: usize, slot: usize, tick: u64) {
        let mut index = core::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        self.elapsed = self.elapsed.max(tick);
        while index != NONE {
            let Node { next, tick, .. } = self.nodes[index as usize];
            self.link(index, tick);
            index = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const TICK: u64 = 1 << TICK_BITS;

    #[test]
    fn an_entry_fires_at_its_tick_and_once() {
        let mut wheel = Wheel::new();
        wheel.arm(3, Ns(0), Ns(TICK + 1));
        assert_eq!(wheel.expire(Ns(TICK + 1)), None, "not before its deadline");
        assert_eq!(wheel.next_deadline(), Some(Ns(2 * TICK)));
        assert_eq!(wheel.expire(Ns(2 * TICK)), Some(3));
        assert_eq!((wheel.expire(Ns(1 << 40)), wheel.next_deadline()), (None, None));
    }

    proptest! {
        /// I4, and the order of time, against a model.
        #[test]
        fn the_wheel_agrees_with_a_sorted_list(
            steps in proptest::collection::vec((0u32..20, 0u64..1 << 40, 0u32..40), 0..200),
        ) {
            let (mut wheel, mut model, mut now) = (Wheel::new(), BTreeMap::new(), 0);
            for (index, random, shift) in steps {
                let ahead = random >> shift;
                match ahead % 4 {
                    0 => { wheel.cancel(index); model.remove(&index); }
                    1 | 2 => { wheel.arm(index, Ns(now), Ns(now + ahead)); model.insert(index, now + ahead); }
                    _ => {
                        now += ahead;
                        while let Some(fired) = wheel.expire(Ns(now)) {
                            let deadline = model.remove(&fired);
                            prop_assert!(deadline.is_some_and(|deadline| deadline <= now));
                        }
                        let late = model.values().find(|&&deadline| deadline + 2 * TICK <= now);
                        prop_assert_eq!(late, None);
                    }
                }
                let first = model.values().min().map(|first| first.div_ceil(TICK).max(now / TICK + 1) * TICK);
                let next = wheel.next_deadline().map(|next| next.0);
                prop_assert!(next <= first && next.is_some() == first.is_some(), "{:?} {:?}", next, first);
            }
        }
    }
}
