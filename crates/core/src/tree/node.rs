//! The tree's per-task state, and how the tree reaches it.

use crate::TaskSlot;
use crate::task::NIL;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The place of a task in a [`crate::TaskTree`]: a field of the policy's own state, so tasks of policies without trees
/// do not grow. 48 bytes of relaxed atomics (I1), meaningful only while the task is in a tree.
#[derive(Debug, Default)]
pub struct TreeNode {
    children: [AtomicU32; 2],
    parent: AtomicU32,
    /// No child has a higher priority than its parent, which keeps the tree shallow.
    priority: AtomicU32,
    key: AtomicU64,
    rank: AtomicU64,
    /// The least rank in the subtree under this node.
    least: AtomicU64,
}

impl TreeNode {
    /// Returns the key under which the task was last inserted.
    pub fn key(&self) -> u64 {
        self.key.load(Relaxed)
    }

    /// Returns the rank with which the task was last inserted.
    pub fn rank(&self) -> u64 {
        self.rank.load(Relaxed)
    }

    /// Makes it a leaf that is not in a tree yet.
    pub(super) fn set(&self, key: u64, rank: u64, priority: u32) {
        self.children.iter().for_each(|child| child.store(NIL, Relaxed));
        self.parent.store(NIL, Relaxed);
        self.priority.store(priority, Relaxed);
        self.key.store(key, Relaxed);
        self.rank.store(rank, Relaxed);
        self.least.store(rank, Relaxed);
    }
}

/// The state of a task that can be in a [`crate::TaskTree`].
///
/// ```
/// use heddle_core::{TreeNode, TreeTask, Var};
///
/// #[derive(Default)]
/// struct Job {
///     node: TreeNode,
///     left: Var,
/// }
///
/// impl TreeTask for Job {
///     fn node(&self) -> &TreeNode {
///         &self.node
///     }
/// }
/// ```
pub trait TreeTask {
    /// Returns the field that the tree uses.
    fn node(&self) -> &TreeNode;
}

impl TreeTask for TreeNode {
    fn node(&self) -> &TreeNode {
        self
    }
}

/// Returns whether `a` precedes `b` on a circle of 2^64 values, less than half of which are in use at a time.
#[inline]
pub(super) fn before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

/// The left child.
pub(super) const LEFT: usize = 0;
/// The right child.
pub(super) const RIGHT: usize = 1;

/// The nodes in their slots, by index; [`NIL`] is no node.
pub(super) struct Nodes<'a, T>(pub(super) &'a [TaskSlot<T>]);

impl<T: TreeTask> Nodes<'_, T> {
    #[inline]
    pub fn at(&self, index: u32) -> &TreeNode {
        self.0[index as usize].policy.node()
    }

    #[inline]
    pub fn child(&self, index: u32, side: usize) -> u32 {
        self.at(index).children[side].load(Relaxed)
    }

    #[inline]
    pub fn parent(&self, index: u32) -> u32 {
        self.at(index).parent.load(Relaxed)
    }

    #[inline]
    pub fn priority(&self, index: u32) -> u32 {
        self.at(index).priority.load(Relaxed)
    }

    /// Returns on which side of `parent` its child `child` is.
    #[inline]
    pub fn side(&self, parent: u32, child: u32) -> usize {
        if self.child(parent, LEFT) == child { LEFT } else { RIGHT }
    }

    /// Links `child`, which may be [`NIL`], under `parent`, which must not be.
    #[inline]
    pub fn link(&self, parent: u32, side: usize, child: u32) {
        self.at(parent).children[side].store(child, Relaxed);
        self.set_parent(child, parent);
    }

    #[inline]
    pub fn set_parent(&self, child: u32, parent: u32) {
        if child != NIL {
            self.at(child).parent.store(parent, Relaxed);
        }
    }

    /// Returns the last node reached by going to one side only.
    pub fn end(&self, mut from: u32, side: usize) -> u32 {
        while from != NIL && self.child(from, side) != NIL {
            from = self.child(from, side);
        }
        from
    }

    /// Returns the least rank under `root`, which must not be [`NIL`].
    #[inline]
    pub fn least(&self, root: u32) -> u64 {
        self.at(root).least.load(Relaxed)
    }

    /// Recomputes the least rank under `root` from its children. Returns whether it changed.
    #[inline]
    pub fn refresh(&self, root: u32) -> bool {
        let mut least = self.at(root).rank();
        for child in [self.child(root, LEFT), self.child(root, RIGHT)] {
            if child != NIL && before(self.least(child), least) {
                least = self.least(child);
            }
        }
        let changed = least != self.least(root);
        self.at(root).least.store(least, Relaxed);
        changed
    }

    /// Returns the first node under `root` with exactly the rank `least`, which is the least one there.
    pub fn find_least(&self, mut root: u32, least: u64) -> u32 {
        loop {
            let left = self.child(root, LEFT);
            if left != NIL && self.least(left) == least {
                root = left;
            } else if self.at(root).rank() == least {
                return root;
            } else {
                root = self.child(root, RIGHT);
            }
        }
    }
}
