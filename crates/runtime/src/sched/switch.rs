//! From one context to the next.

use super::{Scheduler, Shared};
use crate::domain::Domain;
use crate::task::{Task, TaskRef};
use crate::worker::{After, BUDGET, Worker};
use heddle_arch::{PreemptCount, switch};
use heddle_core::Policy;
use std::sync::atomic::Ordering;

impl<P: Policy> Shared<P> {
    /// Like [`Shared::pick`], for a task that leaves the CPU: nothing if the worker's loop has to run first.
    #[inline(always)]
    pub(super) fn pick_directly(&self, domain: &Domain<P>, worker: &Worker) -> Option<TaskRef> {
        let budget = worker.budget.get() - 1;
        worker.budget.set(budget);
        if budget == 0 {
            worker.budget.set(BUDGET);
            if self.core.has_inputs() {
                worker.poll_first.set(true);
                return None;
            }
        }
        if !worker.attached.load(Ordering::Relaxed) {
            return None;
        }
        self.pick(domain, worker)
    }

    /// Notes what the worker runs from now on.
    #[inline(always)]
    pub(super) fn dispatch(&self, worker: &Worker, task: Option<TaskRef>) {
        let address = task.map_or(std::ptr::null_mut(), |t| t.addr() as *mut Task);
        worker.current.store(address, Ordering::Relaxed);
        worker.generation.store(worker.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if let Some(task) = task {
            task.get().cpu.store(worker.cpu() as u32, Ordering::Relaxed);
            worker.stats.switches.add(1);
            if self.timed {
                let now = heddle_arch::rdtsc();
                worker.started.store(now, Ordering::Relaxed);
                worker.look_at.set(now + self.quantum_tsc);
            }
        }
    }

    /// Leaves the calling task for `next`, or for the worker's loop. The lock of the worker's queue is held; `after` says
    /// what becomes of the task. Returns when the task runs again, on whatever worker, with preemption off as deep as before.
    #[inline(always)]
    pub(super) fn leave(
        &'static self,
        worker: &'static Worker,
        task: &Task,
        next: Option<TaskRef>,
        after: After,
    ) {
        // SAFETY: a task runs on a worker.
        let depth = unsafe { PreemptCount::depth() };
        self.dispatch(worker, next);
        worker.after.set(after);
        let (sp, fs) = match next {
            Some(next) => (next.get().sp.get(), next.get().fs),
            None => (worker.loop_sp.get(), worker.loop_fs.get()),
        };
        // SAFETY: `sp` was saved by a switch or is a fresh frame, and belongs to a context that is off CPU: a task that was
        // queued under the lock, or the loop of this very worker. The lock is held until `finish_switch`.
        unsafe { switch(task.sp.as_ptr(), sp, fs) };
        self.finish_switch();
        // SAFETY: as above, perhaps another worker.
        unsafe { PreemptCount::set_depth(depth) };
    }

    /// Runs `task` from the worker's loop, with the lock held. Returns when some task leaves for the loop.
    pub(super) fn go(&'static self, worker: &'static Worker, task: TaskRef) {
        self.dispatch(worker, Some(task));
        worker.after.set(After::Unlock);
        // SAFETY: as in `leave`.
        unsafe { switch(worker.loop_sp.as_ptr(), task.get().sp.get(), task.get().fs) };
        self.finish_switch();
        // SAFETY: this is the loop of the worker, which is not preempted.
        unsafe { PreemptCount::set_depth(1) };
    }
}
