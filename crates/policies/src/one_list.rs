//! The run queue of policies that serve in order of arrival.

/// The part of `impl Policy` that such policies share: `Task` (nothing unless it is given), `Queue` and
/// its operations. Every task goes to the tail, even after a failed commit: at the head, a task
/// that can never run would hold up all others.
macro_rules! one_list {
    () => {
        one_list!(());
    };
    ($task:ty) => {
        type Task = $task;
        type Queue = heddle_core::TaskList;

        const PUBLISHES: bool = true;

        fn queue(&self) -> Self::Queue {
            Self::Queue::default()
        }

        #[inline]
        fn len(&self, queue: &Self::Queue) -> usize {
            queue.len()
        }

        #[inline]
        fn enqueue(
            &self,
            cx: &heddle_core::Cx<'_, $task>,
            queue: &mut Self::Queue,
            task: heddle_core::TaskId,
            _: heddle_core::Enqueue,
        ) {
            queue.push_back(cx.tasks, task);
        }

        #[inline]
        fn dequeue(
            &self,
            cx: &heddle_core::Cx<'_, $task>,
            queue: &mut Self::Queue,
        ) -> Option<heddle_core::TaskId> {
            queue.pop_front(cx.tasks)
        }

        fn remove(
            &self,
            cx: &heddle_core::Cx<'_, $task>,
            queue: &mut Self::Queue,
            task: heddle_core::TaskId,
        ) -> bool {
            queue.remove(cx.tasks, task);
            true
        }

        fn upcoming(
            &self,
            cx: &heddle_core::Cx<'_, $task>,
            queue: &Self::Queue,
            each: &mut dyn FnMut(heddle_core::TaskId) -> bool,
        ) {
            queue.iter(cx.tasks).all(each);
        }
    };
}

pub(crate) use one_list;
