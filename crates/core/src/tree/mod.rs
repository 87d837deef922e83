//! The intrusive ordered run queue.
//!
//! A treap (Seidel and Aragon, Algorithmica 16, 1996): a search tree by key and a heap by pseudo-random priority, so
//! its shape is that of a tree into which the keys were inserted in random order, whatever the actual order. Of the
//! balanced trees it needs the least code and the fewest writes: two rotations on average to insert or remove.
//! Priorities come from the tree's own generator, so equal histories give equal trees (I3).
//!
//! Among equal keys the newest comes last, and rotations keep the order of all nodes: ties are first in, first out.

mod node;
#[cfg(test)]
mod tests;

pub use node::{TreeNode, TreeTask};

use crate::task::NIL;
use crate::{TaskId, TaskSlot};
use core::sync::atomic::Ordering::Relaxed;
use node::{LEFT, Nodes, RIGHT, before};

/// A queue of tasks ordered by key, ties first in, first out, chained through the tasks themselves.
///
/// It needs no memory of its own and has no capacity to exceed: a task is in at most one queue (I2). With `n` tasks,
/// operations take O(log n) expected time; `len`, `first` and `first_key` take constant time.
///
/// Keys are compared by their signed difference, as wrapping virtual times require: all keys in one tree at a time lie
/// within 2^63 of each other. The same holds for ranks, and for bounds compared with the keys.
///
/// ```
/// use heddle_core::{TaskId, TaskSlot, TaskTree, TreeNode};
/// let slots: Vec<TaskSlot<TreeNode>> = (0..3).map(|_| TaskSlot::default()).collect();
/// let mut queue = TaskTree::default();
/// queue.insert(&slots, TaskId(2), 70);
/// queue.insert(&slots, TaskId(0), 30);
/// queue.insert(&slots, TaskId(1), 30);
/// assert_eq!(queue.first_key(&slots), Some(30));
/// assert_eq!(queue.pop_first(&slots), Some(TaskId(0)));
/// assert_eq!(queue.pop_first(&slots), Some(TaskId(1)));
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Debug)]
pub struct TaskTree {
    root: u32,
    first: u32,
    len: u32,
    /// The state of the priority generator.
    seed: u32,
}

impl Default for TaskTree {
    fn default() -> Self {
        TaskTree { root: NIL, first: NIL, len: 0, seed: 0 }
    }
}

fn some(index: u32) -> Option<TaskId> {
    (index != NIL).then_some(TaskId(index))
}

impl TaskTree {
    /// Returns the number of waiting tasks.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether no task waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the task with the least key.
    #[inline]
    pub fn first(&self) -> Option<TaskId> {
        some(self.first)
    }

    /// Returns the least key.
    #[inline]
    pub fn first_key<T: TreeTask>(&self, slots: &[TaskSlot<T>]) -> Option<u64> {
        self.first().map(|first| slots[first.index()].policy.node().key())
    }

    /// Returns the task with the largest key; among equal ones, the newest.
    pub fn last<T: TreeTask>(&self, slots: &[TaskSlot<T>]) -> Option<TaskId> {
        some(Nodes(slots).end(self.root, RIGHT))
    }

    /// Returns the first task whose key is at least `bound`.
    pub fn first_from<T: TreeTask>(&self, slots: &[TaskSlot<T>], bound: u64) -> Option<TaskId> {
        let nodes = Nodes(slots);
        let (mut found, mut at) = (NIL, self.root);
        while at != NIL {
            let early = before(nodes.at(at).key(), bound);
            found = if early { found } else { at };
            at = nodes.child(at, if early { RIGHT } else { LEFT });
        }
        some(found)
    }

    /// Returns the task with the least rank among those whose key is at most `bound`; among equal ranks, the first in
    /// order.
    pub fn least_until<T: TreeTask>(&self, slots: &[TaskSlot<T>], bound: u64) -> Option<TaskId> {
        let nodes = Nodes(slots);
        let mut best: Option<(u64, u32)> = None;
        let mut consider = |rank: u64, root: u32| {
            if best.is_none_or(|(least, _)| before(rank, least)) {
                best = Some((rank, root));
            }
        };
        let mut at = self.root;
        while at != NIL {
            let left = nodes.child(at, LEFT);
            if before(bound, nodes.at(at).key()) {
                at = left;
                continue;
            }
            // Everything to the left counts, and this node; to the right, only part.
            if left != NIL {
                consider(nodes.least(left), left);
            }
            consider(nodes.at(at).rank(), at);
            at = nodes.child(at, RIGHT);
        }
        best.map(|(rank, root)| TaskId(nodes.find_least(root, rank)))
    }

    /// Inserts `task` in order, behind those with the same key.
    ///
    /// # Panics
    /// If the task is already in a queue (I2).
    #[inline]
    pub fn insert<T: TreeTask>(&mut self, slots: &[TaskSlot<T>], task: TaskId, key: u64) {
        self.insert_ranked(slots, task, key, 0);
    }

    /// Inserts `task` with a rank, by which [`least_until`](TaskTree::least_until) finds it.
    ///
    /// # Panics
    /// If the task is already in a queue (I2).
    pub fn insert_ranked<T: TreeTask>(
        &mut self,
        slots: &[TaskSlot<T>],
        task: TaskId,
        key: u64,
        rank: u64,
    ) {
        let queued = &slots[task.index()].links.queued;
        assert!(queued.load(Relaxed) == 0, "a task stands in at most one queue");
        queued.store(1, Relaxed);
        let nodes = Nodes(slots);
        nodes.at(task.0).set(key, rank, self.draw());
        self.hang(&nodes, task.0, key);
        while self.is_out_of_order(&nodes, task.0) {
            self.rotate_up(&nodes, task.0);
        }
        climb(&nodes, nodes.parent(task.0));
        self.len += 1;
    }

    /// Removes the task with the least key.
    #[inline]
    pub fn pop_first<T: TreeTask>(&mut self, slots: &[TaskSlot<T>]) -> Option<TaskId> {
        let task = self.first()?;
        self.remove(slots, task);
        Some(task)
    }

    /// Removes `task` from anywhere in this tree. The caller knows that it is in this tree and no other.
    ///
    /// # Panics
    /// If the task is in no queue.
    pub fn remove<T: TreeTask>(&mut self, slots: &[TaskSlot<T>], task: TaskId) {
        assert!(slots[task.index()].is_queued(), "{task} stands in no queue");
        let (nodes, own) = (Nodes(slots), task.0);
        if self.first == own {
            // It has no left child, so its successor is to its right, else above.
            let right = nodes.end(nodes.child(own, RIGHT), LEFT);
            self.first = if right == NIL { nodes.parent(own) } else { right };
        }
        let heir = loop {
            match (nodes.child(own, LEFT), nodes.child(own, RIGHT)) {
                (left, NIL) => break left,
                (NIL, right) => break right,
                (left, right) if nodes.priority(left) > nodes.priority(right) => {
                    self.rotate_up(&nodes, left);
                }
                (_, right) => self.rotate_up(&nodes, right),
            }
        };
        self.replace(&nodes, own, heir);
        climb(&nodes, nodes.parent(own));
        slots[task.index()].links.queued.store(0, Relaxed);
        self.len -= 1;
    }

    /// Returns the next priority: a Weyl sequence, mixed by the finaliser of MurmurHash3, which repeats after 2^32
    /// draws.
    fn draw(&mut self) -> u32 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9);
        let mut x = self.seed;
        x = (x ^ x >> 16).wrapping_mul(0x85EB_CA6B);
        x = (x ^ x >> 13).wrapping_mul(0xC2B2_AE35);
        x ^ x >> 16
    }

    /// Links `own` as a leaf where its key belongs.
    fn hang<T: TreeTask>(&mut self, nodes: &Nodes<'_, T>, own: u32, key: u64) {
        let (mut parent, mut side, mut at, mut leftmost) = (NIL, LEFT, self.root, true);
        while at != NIL {
            parent = at;
            side = if before(key, nodes.at(at).key()) { LEFT } else { RIGHT };
            leftmost &= side == LEFT;
            at = nodes.child(at, side);
        }
        match parent {
            NIL => self.root = own,
            _ => nodes.link(parent, side, own),
        }
        if leftmost {
            self.first = own;
        }
    }

    fn is_out_of_order<T: TreeTask>(&self, nodes: &Nodes<'_, T>, own: u32) -> bool {
        let parent = nodes.parent(own);
        parent != NIL && nodes.priority(parent) < nodes.priority(own)
    }

    /// Exchanges `child` with its parent, keeping the order of the nodes.
    fn rotate_up<T: TreeTask>(&mut self, nodes: &Nodes<'_, T>, child: u32) {
        let parent = nodes.parent(child);
        let side = nodes.side(parent, child);
        self.replace(nodes, parent, child);
        nodes.link(parent, side, nodes.child(child, 1 - side));
        nodes.link(child, 1 - side, parent);
        nodes.refresh(parent);
        nodes.refresh(child);
    }

    /// Links `heir`, which may be [`NIL`], in place of `own`.
    fn replace<T: TreeTask>(&mut self, nodes: &Nodes<'_, T>, own: u32, heir: u32) {
        match nodes.parent(own) {
            NIL => {
                self.root = heir;
                nodes.set_parent(heir, NIL);
            }
            above => nodes.link(above, nodes.side(above, own), heir),
        }
    }
}

/// Updates the least ranks from `at` upwards, as far as they change.
fn climb<T: TreeTask>(nodes: &Nodes<'_, T>, mut at: u32) {
    while at != NIL && nodes.refresh(at) {
        at = nodes.parent(at);
    }
}
