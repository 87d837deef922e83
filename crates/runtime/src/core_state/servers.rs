//! CPUs and the workers that serve them.
//!
//! ```text
//!            attach                    detached, then back at its loop
//! new -----------------> serves a CPU --------------------------------> spare --100 ms, too many--> retired
//!  ^                          ^                                           |                            |
//!  |                          +------------------- hand over -------------+                            |
//!  +------------------------------ its block, for the next thread -------------------------------------+
//! ```

use crate::worker::{Owner, Remote, Worker};
use crate::worker_list::{AllWorkers, Reserve};
use heddle_core::Ns;
use heddle_sys::{clock, thread};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// One CPU of the runtime.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Cpu {
    server: AtomicPtr<Remote>,
    /// Address of the task that the dispatcher, if any, has delivered to it.
    pub(crate) mailbox: AtomicUsize,
}

impl Cpu {
    /// Returns the worker that serves it.
    #[inline]
    pub(crate) fn server(&self) -> Option<&'static Remote> {
        // SAFETY: null or a worker, and workers live as long as their runtime.
        unsafe { self.server.load(Ordering::Acquire).as_ref() }
    }

    /// Makes `worker` its server.
    pub(crate) fn attach(&self, worker: &'static Remote) {
        worker.attached.store(true, Ordering::Release);
        self.server.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
    }
}

/// All workers ever created, the spares waiting for a CPU, and those whose threads have ended.
#[derive(Default)]
pub(crate) struct Servers {
    pub(crate) all: AllWorkers,
    spares: Mutex<Reserve>,
    retired: Mutex<Reserve>,
}

impl Servers {
    /// Returns the workers that wait for a CPU.
    pub(crate) fn spares(&self) -> MutexGuard<'_, Reserve> {
        self.spares.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the workers whose threads have ended; the next thread takes one.
    pub(crate) fn retired(&self) -> MutexGuard<'_, Reserve> {
        self.retired.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Removes `worker` from the spares if there are more of them than `cpus`. Returns false if it stays or has got a
    /// CPU.
    pub(crate) fn leave_spares(&self, worker: &Remote, cpus: usize) -> bool {
        let mut spares = self.spares();
        spares.len() > cpus && spares.remove(worker)
    }

    /// Keeps a worker whose thread is ending for reuse by the next thread.
    pub(crate) fn retire(&self, owner: Owner) {
        self.retired().push(owner.remote());
    }

    /// Returns a worker whose thread has ended, for `cpu`.
    pub(crate) fn take_retired(&self, cpu: usize) -> Option<Owner> {
        let worker = self.retired().pop()?;
        worker.cpu.store(cpu as u32, Ordering::Relaxed);
        // SAFETY: `retire` put it there, and took its owner.
        Some(unsafe { Owner::again(worker) })
    }

    /// Returns whether any worker has a task, on its CPU or in the kernel.
    pub(crate) fn run_task(&self) -> bool {
        self.all.iter().any(|worker| !worker.current.load(Ordering::Relaxed).is_null())
    }

    /// Returns whether a worker still has the task that it had at an earlier call with the same `turns`, and the task
    /// is to blame: it has used `limit` of CPU time since, or sleeps in the kernel. On a busy machine it may just
    /// have had no CPU.
    pub(crate) fn is_held(&self, turns: &mut Vec<TurnOfTask>, limit: Ns) -> bool {
        let mut is_held = false;
        let now: Vec<_> = self.all.iter().filter_map(TurnOfTask::of).collect();
        let earlier = |now: TurnOfTask| {
            let begin = turns.iter().find(|turn| (turn.tid, turn.task) == (now.tid, now.task));
            let Some(&begin) = begin else { return now };
            is_held |= now.used >= begin.used + limit || thread::is_asleep(now.tid);
            begin
        };
        *turns = now.into_iter().map(earlier).collect();
        is_held
    }
}

/// A task that a worker has, and the CPU time of the worker's thread when it was first seen with it.
#[derive(Clone, Copy)]
pub(crate) struct TurnOfTask {
    tid: u32,
    task: usize,
    used: Ns,
}

impl TurnOfTask {
    fn of(worker: &Remote) -> Option<TurnOfTask> {
        let (task, tid) =
            (worker.current.load(Ordering::Relaxed), worker.tid.load(Ordering::Relaxed));
        let has_task = tid != 0 && !task.is_null();
        has_task.then(|| TurnOfTask { tid, task: task.addr(), used: clock::cpu_time_of(tid) })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let mut workers = self.all.iter();
        let mut next = workers.next();
        while let Some(worker) = next {
            next = workers.next();
            // SAFETY: its thread has ended, and only this list still reaches it, which has moved on to the next entry.
            unsafe { Worker::free(worker) };
        }
    }
}
