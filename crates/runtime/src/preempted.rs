//! Which tasks may hold a lock that others wait for.
//!
//! No word of memory tells who holds a lock of the standard library. A holder that is not on a CPU has been preempted,
//! so this is a guess from the tasks of a run queue that were preempted last ([`park_for_lock`]).
//!
//! [`park_for_lock`]: crate::task::Scheduler::park_for_lock

use crate::task::EntityRef;

/// Tasks that were preempted lately, and so may hold a lock that others wait for. Some have run or ended since.
#[derive(Default)]
pub(crate) struct Preempted {
    /// The likeliest holder last.
    tasks: [Option<EntityRef>; 8],
    len: usize,
    /// The task that was taken last, and how many times in a row it was preempted again before it was done.
    taken: Option<EntityRef>,
    in_vain: u32,
}

/// How many turns in a row a task has that may hold a lock, before another is likelier.
const PATIENCE: u32 = 4;

impl Preempted {
    /// Adds a task that was preempted: it is the likeliest holder of what is found locked next, unless others have lent
    /// it the CPU too often in vain.
    pub(crate) fn push(&mut self, task: EntityRef) {
        if self.len == self.tasks.len() {
            self.tasks.copy_within(1.., 0);
            self.len -= 1;
        }
        let is_again = self.taken == Some(task);
        self.in_vain += u32::from(is_again);
        let at = if is_again && self.in_vain >= PATIENCE { 0 } else { self.len };
        self.tasks.copy_within(at..self.len, at + 1);
        self.tasks[at] = Some(task);
        self.len += 1;
    }

    /// Removes the likeliest.
    pub(crate) fn pop(&mut self) -> Option<EntityRef> {
        self.len = self.len.checked_sub(1)?;
        let task = self.tasks[self.len];
        if self.taken != task || self.in_vain >= PATIENCE {
            self.in_vain = 0;
        }
        self.taken = task;
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Entity;

    fn tasks() -> Vec<EntityRef> {
        (0..10).map(|_| EntityRef::new(Box::leak(Box::new(Entity::new(false))))).collect()
    }

    #[test]
    fn the_task_preempted_last_is_the_likeliest_and_the_oldest_are_forgotten() {
        let (tasks, mut preempted) = (tasks(), Preempted::default());
        assert_eq!(preempted.pop(), None);
        tasks.iter().for_each(|&task| preempted.push(task));
        for &task in tasks.iter().rev().take(8) {
            assert_eq!(preempted.pop(), Some(task));
        }
        assert_eq!(preempted.pop(), None);
    }

    #[test]
    fn a_task_that_runs_in_vain_too_often_is_the_unlikeliest() {
        let (tasks, mut preempted) = (tasks(), Preempted::default());
        tasks[..3].iter().for_each(|&task| preempted.push(task));
        let mut turns = Vec::new();
        for _ in 0..3 * PATIENCE {
            let task = preempted.pop().expect("it was preempted again");
            turns.push(tasks.iter().position(|&other| other == task).expect("one of them"));
            preempted.push(task);
        }
        let expected = [2, 1, 0].map(|task| vec![task; PATIENCE as usize]).concat();
        assert_eq!(turns, expected);
    }
}
