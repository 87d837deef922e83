//! The intrusive run queue.

use crate::task::{Links, NIL};
use crate::{TaskId, TaskSlot};
use core::mem;
use core::sync::atomic::Ordering::Relaxed;

/// A first-in, first-out queue of tasks, chained through their slots.
///
/// It needs no memory of its own and has no capacity to exceed: a task is in at most one list (I2), so the number of
/// tasks bounds it. All operations take constant time. Both ends and the middle are accessible, as stealing and
/// removing a dead task require.
///
/// ```
/// use heddle_core::{TaskId, TaskList, TaskSlot};
/// let slots: Vec<TaskSlot<()>> = (0..3).map(|_| TaskSlot::default()).collect();
/// let mut queue = TaskList::default();
/// queue.push_back(&slots, TaskId(2));
/// queue.push_back(&slots, TaskId(0));
/// assert_eq!(queue.pop_front(&slots), Some(TaskId(2)));
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Debug)]
pub struct TaskList {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for TaskList {
    fn default() -> Self {
        TaskList { head: NIL, tail: NIL, len: 0 }
    }
}

fn links<T>(slots: &[TaskSlot<T>], index: u32) -> &Links {
    &slots[index as usize].links
}

/// Marks `task` as queued between `prev` and `next`.
#[inline]
fn enter<T>(slots: &[TaskSlot<T>], task: TaskId, prev: u32, next: u32) {
    let own = links(slots, task.0);
    assert!(own.queued.load(Relaxed) == 0, "a task stands in at most one queue");
    own.queued.store(1, Relaxed);
    own.prev.store(prev, Relaxed);
    own.next.store(next, Relaxed);
}

impl TaskList {
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

    /// Returns the task that has waited longest.
    pub fn front(&self) -> Option<TaskId> {
        (self.head != NIL).then_some(TaskId(self.head))
    }

    /// Returns the tasks, oldest first.
    pub fn iter<'a, T>(
        &self,
        slots: &'a [TaskSlot<T>],
    ) -> impl Iterator<Item = TaskId> + use<'a, T> {
        core::iter::successors(self.front(), |task| {
            let next = links(slots, task.0).next.load(Relaxed);
            (next != NIL).then_some(TaskId(next))
        })
    }

    /// Puts `task` behind all others.
    ///
    /// # Panics
    /// If the task is already in a list (I2).
    #[inline]
    pub fn push_back<T>(&mut self, slots: &[TaskSlot<T>], task: TaskId) {
        let last = mem::replace(&mut self.tail, task.0);
        enter(slots, task, last, NIL);
        self.set_next(slots, last, task.0);
        self.len += 1;
    }

    /// Puts `task` before all others.
    ///
    /// # Panics
    /// If the task is already in a list (I2).
    #[inline]
    pub fn push_front<T>(&mut self, slots: &[TaskSlot<T>], task: TaskId) {
        let first = mem::replace(&mut self.head, task.0);
        enter(slots, task, NIL, first);
        self.set_prev(slots, first, task.0);
        self.len += 1;
    }

    /// Removes the task that has waited longest.
    #[inline]
    pub fn pop_front<T>(&mut self, slots: &[TaskSlot<T>]) -> Option<TaskId> {
        let task = self.front()?;
        let own = links(slots, task.0);
        own.queued.store(0, Relaxed);
        self.head = own.next.load(Relaxed);
        self.set_prev(slots, self.head, NIL);
        self.len -= 1;
        Some(task)
    }

    /// Removes the newest task.
    #[inline]
    pub fn pop_back<T>(&mut self, slots: &[TaskSlot<T>]) -> Option<TaskId> {
        let task = (self.tail != NIL).then_some(TaskId(self.tail))?;
        self.unlink(slots, task);
        Some(task)
    }

    /// Appends all of `other`, in order, leaving it empty.
    pub fn append<T>(&mut self, slots: &[TaskSlot<T>], other: &mut TaskList) {
        if other.is_empty() {
            return;
        }
        self.set_next(slots, self.tail, other.head);
        self.set_prev(slots, other.head, self.tail);
        self.tail = other.tail;
        self.len += other.len;
        *other = TaskList::default();
    }

    /// Removes `task` from anywhere in this list. The caller knows that it is in this list and no other.
    ///
    /// # Panics
    /// If the task is in no list.
    pub fn remove<T>(&mut self, slots: &[TaskSlot<T>], task: TaskId) {
        assert!(slots[task.index()].is_queued(), "{task} stands in no queue");
        self.unlink(slots, task);
    }

    #[inline]
    fn unlink<T>(&mut self, slots: &[TaskSlot<T>], task: TaskId) {
        let own = links(slots, task.0);
        let (prev, next) = (own.prev.load(Relaxed), own.next.load(Relaxed));
        self.set_next(slots, prev, next);
        self.set_prev(slots, next, prev);
        own.queued.store(0, Relaxed);
        self.len -= 1;
    }

    /// Sets what follows `index`; for [`NIL`], the head.
    #[inline]
    fn set_next<T>(&mut self, slots: &[TaskSlot<T>], index: u32, next: u32) {
        match index {
            NIL => self.head = next,
            _ => links(slots, index).next.store(next, Relaxed),
        }
    }

    /// Sets what precedes `index`; for [`NIL`], the tail.
    #[inline]
    fn set_prev<T>(&mut self, slots: &[TaskSlot<T>], index: u32, prev: u32) {
        match index {
            NIL => self.tail = prev,
            _ => links(slots, index).prev.store(prev, Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    const TASKS: u32 = 8;

    fn slots() -> Vec<TaskSlot<()>> {
        (0..TASKS).map(|_| TaskSlot::default()).collect()
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        PushBack(u32),
        PushFront(u32),
        PopFront,
        PopBack,
        Remove(u32),
        /// Appends the list to another that holds some of the other tasks.
        AppendTo(u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..TASKS).prop_map(Op::PushBack),
            (0..TASKS).prop_map(Op::PushFront),
            Just(Op::PopFront),
            Just(Op::PopBack),
            (0..TASKS).prop_map(Op::Remove),
            (0..TASKS).prop_map(Op::AppendTo),
        ]
    }

    proptest! {
        /// The list behaves like a `VecDeque`, for any sequence of operations.
        #[test]
        fn behaves_as_a_deque(ops in prop::collection::vec(op(), 0..200)) {
            let slots = slots();
            let mut list = TaskList::default();
            let mut model: VecDeque<TaskId> = VecDeque::new();
            for op in ops {
                match op {
                    Op::PushBack(t) if !model.contains(&TaskId(t)) => {
                        list.push_back(&slots, TaskId(t));
                        model.push_back(TaskId(t));
                    }
                    Op::PushFront(t) if !model.contains(&TaskId(t)) => {
                        list.push_front(&slots, TaskId(t));
                        model.push_front(TaskId(t));
                    }
                    Op::PopFront => prop_assert_eq!(list.pop_front(&slots), model.pop_front()),
                    Op::PopBack => prop_assert_eq!(list.pop_back(&slots), model.pop_back()),
                    Op::Remove(t) if model.contains(&TaskId(t)) => {
                        list.remove(&slots, TaskId(t));
                        model.retain(|&m| m != TaskId(t));
                    }
                    Op::AppendTo(upto) => {
                        let mut front = TaskList::default();
                        let free: Vec<_> =
                            (0..upto).map(TaskId).filter(|t| !model.contains(t)).collect();
                        free.iter().for_each(|&task| front.push_back(&slots, task));
                        front.append(&slots, &mut list);
                        prop_assert_eq!((list.len(), list.front()), (0, None));
                        list = front;
                        free.into_iter().rev().for_each(|task| model.push_front(task));
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.front(), model.front().copied());
            }
        }
    }

    #[test]
    #[should_panic(expected = "at most one queue")]
    fn refuses_a_task_that_is_queued_already() {
        let slots = slots();
        let mut list = TaskList::default();
        list.push_back(&slots, TaskId(1));
        list.push_back(&slots, TaskId(1));
    }
}
