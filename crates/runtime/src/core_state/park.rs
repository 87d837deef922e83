//! Which worker parks when there is nothing to do, and which is unparked when there is. The protocol, its states and
//! its proof are in [`heddle_sync::park`]; here it meets the runtime's queues, timers and sockets.

use super::Core;
use crate::worker::Worker;
use heddle_core::{Model, Ns};

/// Looks at the queues before a worker parks: about 2 us.
const SPINS: u32 = 50;

/// Looks at the mailbox before a worker parks that gets its tasks from a dispatcher: some 50 us, about what it takes to
/// unpark it (`heddle bench threads`, `dispatch_late`). Who gave a CPU to a dispatcher wants tasks handed out in less.
const SPINS_FOR_MAIL: u32 = 1000;

/// Where a task was put.
pub(crate) struct Placed {
    pub(crate) cpu: usize,
    /// The CPU is the caller's own.
    pub(crate) local: bool,
}

impl Core {
    /// A task was put somewhere: unparks a worker that should run it. False if all that could are busy.
    #[inline(always)]
    pub(crate) fn unpark_for(&self, placed: Placed, model: Model, balances: bool) -> bool {
        // Its only worker runs: it is the caller's.
        let is_alone = self.cpus.len() == 1 && placed.local && !self.settings.has_dispatcher;
        !is_alone && self.unpark_other(placed, model, balances)
    }

    fn unpark_other(&self, placed: Placed, model: Model, balances: bool) -> bool {
        if self.settings.has_dispatcher {
            self.unpark_dispatcher();
            return !self.parking.idle().is_empty();
        }
        // In the central model any worker may have the task; that of its CPU may have its data in the caches still.
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

    /// Unparks all idle workers; false if there is none.
    pub(crate) fn unpark_all(&self) -> bool {
        self.parking.unpark_all(&self.inputs)
    }

    /// Unparks the worker of `cpu`, or keeps it from parking once.
    pub(crate) fn notify(&self, cpu: usize) {
        self.parking.notify(&self.inputs, cpu);
    }

    /// A worker's loop has nothing to do: parks until another thread unparks it, data or a timer comes, or for
    /// `at_most`. Not at all if it `has_work`, or there `has_new_task` of a task that it has not looked at.
    pub(crate) fn park(
        &self,
        worker: &Worker,
        at_most: Ns,
        has_work: impl Fn() -> bool,
        has_new_task: impl Fn() -> bool,
    ) {
        let is_work = || has_work() || has_new_task();
        for _ in 0..if self.settings.has_dispatcher { SPINS_FOR_MAIL } else { SPINS } {
            if is_work() {
                return;
            }
            std::hint::spin_loop();
        }
        let looks_again = || self.idle_hook.call(worker.cpu(), at_most) || is_work();
        if self.parking.park(&self.inputs, worker.cpu(), at_most, looks_again) {
            worker.stats.sleeps.add(1);
        }
        // Here if it can be seen here: where it runs a task, the run queue is locked.
        if has_work() {
            self.works(worker.cpu());
        }
    }

    /// The worker of `cpu` has work. If it has parked since it last had, another one takes its place.
    #[inline]
    pub(crate) fn works(&self, cpu: usize) {
        if self.cpus.len() > 1 {
            self.parking.works(&self.inputs, cpu);
        }
    }

    /// A timer was set that is the earliest.
    pub(crate) fn timer_is_earlier(&self) {
        self.parking.timer_is_earlier(&self.inputs);
    }

    /// A descriptor was registered.
    pub(crate) fn source_is_new(&self) {
        self.parking.source_is_new(&self.inputs);
    }

    /// Unparks the dispatcher if there is one. The caller has changed what it looks at.
    pub(crate) fn unpark_dispatcher(&self) {
        self.parking.unpark_dispatcher(&self.inputs);
    }

    /// Parks the dispatcher until a task queues, a worker waits, data or a timer comes; not at all if a round is `due`.
    pub(crate) fn park_dispatcher(&self, due: impl Fn() -> bool) {
        self.parking.park_dispatcher(&self.inputs, due);
    }

    /// Unparks the ticker.
    pub(crate) fn unpark_ticker(&self) {
        self.parking.unpark_ticker(&self.inputs);
    }

    /// Parks the ticker until a worker runs; not at all if one does.
    pub(crate) fn park_ticker(&self) {
        self.parking.park_ticker(|| self.is_stopping());
    }
}
