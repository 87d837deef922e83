//! Which worker parks when there is nothing to do, and which is unparked when there is. The protocol, its states and
//! its proof are in [`heddle_sync::park`]; this module connects it to the runtime's queues, timers and sockets.

use super::Core;
use crate::share::Share;
use crate::worker::Worker;
use heddle_core::{Model, Ns};

/// Checks of the queues before a worker parks: about 2 us.
const SPINS: u32 = 50;

/// Checks of the mailbox before a worker fed by a dispatcher parks: some 50 us, about the cost of unparking it (`heddle
/// bench threads`, `dispatch_late`). A user who dedicates a CPU to a dispatcher wants tasks handed out faster than
/// that.
const SPINS_FOR_MAIL: u32 = 1000;

/// Where a task was placed.
pub(crate) struct Placed {
    pub(crate) cpu: usize,
    /// The CPU is the caller's own.
    pub(crate) local: bool,
}

impl Core {
    /// Unparks a worker to run a task that was placed. Returns false if every eligible worker is busy.
    #[inline(always)]
    pub(crate) fn unpark_for(&self, placed: Placed, model: Model, balances: bool) -> bool {
        // The only worker is the caller's, and it is running.
        let is_alone = self.cpus.len() == 1 && placed.local && !self.settings.has_dispatcher;
        !is_alone && self.unpark_other(placed, model, balances)
    }

    fn unpark_other(&self, placed: Placed, model: Model, balances: bool) -> bool {
        if self.settings.has_dispatcher {
            self.unpark_dispatcher();
            return !self.parking.idle().is_empty();
        }
        // In the central model any worker may take the task; the one on its CPU may still have its data cached.
        let own = !placed.local && self.unpark(placed.cpu);
        own || ((model == Model::Central || balances) && self.unpark_any())
    }

    /// Unparks the worker of `cpu` if it is idle.
    #[inline]
    pub(crate) fn unpark(&self, cpu: usize) -> bool {
        self.parking.unpark(&self.inputs, cpu)
    }

    /// Unparks one idle worker, if there is one.
    #[inline]
    pub(crate) fn unpark_any(&self) -> bool {
        self.parking.unpark_any(&self.inputs)
    }

    /// Unparks all idle workers. Returns false if there is none.
    pub(crate) fn unpark_all(&self) -> bool {
        self.parking.unpark_all(&self.inputs)
    }

    /// Unparks the worker of `cpu`, or prevents it from parking once.
    pub(crate) fn notify(&self, cpu: usize) {
        self.parking.notify(&self.inputs, cpu);
    }

    /// Parks a worker whose loop has nothing to do until another thread unparks it, data arrives, a timer expires or
    /// `at_most` has passed. Does not park if it `has_work`, or if there `has_new_task` that it has not considered yet.
    pub(crate) fn park(
        &self,
        worker: &Worker,
        at_most: Ns,
        has_work: impl Fn() -> bool,
        has_new_task: impl Fn() -> bool,
    ) {
        let is_work = || has_work() || has_new_task();
        let share = self.settings.share.as_ref().map(Share::member);
        let spins = match share {
            // Another program has use for the time.
            Some(_) => 0,
            None if self.settings.has_dispatcher => SPINS_FOR_MAIL,
            None => SPINS,
        };
        for _ in 0..spins {
            if is_work() {
                return;
            }
            std::hint::spin_loop();
        }
        if let Some(lanes) = self.inputs.lanes()
            && lanes.spins(&worker.idle_since, is_work)
        {
            return;
        }
        let looks_again = || self.idle_hook.call(worker.cpu(), at_most) || is_work();
        if let Some(share) = share {
            share.leave(worker.cpu());
        }
        if self.parking.park(&self.inputs, worker.cpu(), at_most, looks_again) {
            worker.stats.sleeps.add(1);
        }
        if let Some(share) = share {
            share.enter(worker.cpu());
        }
        // If the work is visible here, do it here: where it runs a task, the run queue is locked.
        if has_work() {
            self.works(worker.cpu());
        }
    }

    /// Marks the worker of `cpu` as having work. If it has parked since it last had work, another takes its place.
    #[inline]
    pub(crate) fn works(&self, cpu: usize) {
        if self.cpus.len() > 1 {
            self.parking.works(&self.inputs, cpu);
        }
    }

    /// Called when a new timer is the earliest.
    pub(crate) fn timer_is_earlier(&self) {
        self.parking.timer_is_earlier(&self.inputs);
    }

    /// Called when a descriptor has been registered.
    pub(crate) fn source_is_new(&self) {
        self.parking.source_is_new(&self.inputs);
    }

    /// Unparks the dispatcher if there is one. The caller has changed the state that it checks.
    pub(crate) fn unpark_dispatcher(&self) {
        self.parking.unpark_dispatcher(&self.inputs);
    }

    /// Parks the dispatcher until a task is queued, a worker waits, data arrives or a timer expires; does not park if a
    /// round is `due`.
    pub(crate) fn park_dispatcher(&self, due: impl Fn() -> bool) {
        self.parking.park_dispatcher(&self.inputs, due);
    }

    /// Unparks the ticker.
    pub(crate) fn unpark_ticker(&self) {
        self.parking.unpark_ticker(&self.inputs);
    }

    /// Parks the ticker until a worker runs; does not park if one does.
    pub(crate) fn park_ticker(&self) {
        self.parking.park_ticker(|| self.is_stopping());
    }
}
