//! A dispatcher on its own CPU, for central policies (Skyloft, section 3.4; Shinjuku).
//!
//! Without one, workers take tasks from the central queue themselves, under its lock. With one, the policy's `poll`
//! hands tasks to idle CPUs: each has a mailbox for one task. The dispatcher also polls sockets and timers, spins
//! while there is something to do, and sleeps in the poll when there is not.

use super::Shared;
use crate::core_state::Core;
use crate::engine::Engine;
use crate::task::{Entity, EntityRef};
use crate::threads;
use crate::worker::{self, Worker};
use heddle_core::{CpuId, CpuSet, Policy};
use heddle_sys::thread;
use std::io;
use std::sync::atomic::{Ordering, fence};

/// Idle rounds before the dispatcher sleeps: some tens of microseconds.
const IDLE_ROUNDS: u32 = 200;

/// Starts the dispatcher of a runtime on the CPU that the system calls `os_id`.
///
/// # Errors
/// The system's, if it cannot create a thread.
pub(crate) fn start(engine: &'static dyn Engine, os_id: u32) -> io::Result<()> {
    threads::start(engine, engine.core().thread_name("hand"), move || {
        let _ = thread::pin(&[os_id]);
        run(engine);
    })
}

/// Runs until the runtime stops.
fn run(engine: &'static dyn Engine) {
    let core = engine.core();
    worker::help(core.liveness());
    let mut idle_rounds = 0;
    while !(core.is_stopping() && (core.is_over() || engine.is_drained())) {
        let woken = core.inputs.take();
        let assigned = engine.dispatch_round();
        idle_rounds = if woken || assigned { 0 } else { idle_rounds + 1 };
        if idle_rounds > IDLE_ROUNDS {
            core.park_dispatcher(|| engine.is_dispatch_due());
            idle_rounds = 0;
        }
        std::hint::spin_loop();
    }
}

impl<P: Policy> Shared<P> {
    /// Returns the CPUs whose worker waits for a task.
    fn waiting_cpus(&self) -> CpuSet {
        let mut idle = CpuSet::EMPTY;
        let waits = |cpu: &usize| self.core.is_waiting(*cpu);
        (0..self.core.cpus.len()).filter(waits).for_each(|cpu| idle.insert(CpuId(cpu as u16)));
        idle
    }

    /// Lets the policy hand out tasks. Returns whether it did.
    pub(super) fn round(&self) -> bool {
        let domain = self.domain_of(0);
        if domain.len() == 0 {
            return false;
        }
        let idle = self.waiting_cpus();
        if idle.is_empty() {
            return false;
        }
        domain.lock();
        self.drain_inbox(domain);
        let mut assigned = false;
        self.locked(domain, 0, &domain.rng).poll(idle, |cpu, task| {
            assigned = true;
            self.core.deliver(cpu.index(), task.withdraw());
        });
        domain.unlock();
        assigned
    }

    /// Returns whether a round would do something, or the runtime is stopping.
    pub(super) fn due(&self) -> bool {
        fence(Ordering::SeqCst);
        self.core.is_stopping() || (self.domain_of(0).len() != 0 && !self.waiting_cpus().is_empty())
    }
}

impl Core {
    /// Takes the task that the dispatcher delivered to the CPU of `worker`.
    pub(super) fn collect(&self, worker: &Worker) -> Option<EntityRef> {
        let mailbox = &self.cpus[worker.cpu()].mailbox;
        let address = mailbox.load(Ordering::Acquire);
        // The dispatcher considers a CPU idle if it has neither a task nor mail, so it must see the task first.
        worker.current.store(address as *mut Entity, Ordering::Relaxed);
        mailbox.store(0, Ordering::Release);
        // SAFETY: zero, or an address that `deliver` put there.
        (address != 0).then(|| unsafe { EntityRef::from_addr(address) })
    }

    /// Returns whether the worker of `cpu` waits for a task. A worker blocked in the kernel still has its task.
    fn is_waiting(&self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.mailbox.load(Ordering::Acquire) == 0
            && cpu.server().is_some_and(|w| w.current.load(Ordering::Acquire).is_null())
    }

    /// Delivers `task` to `cpu`, whose worker waits.
    fn deliver(&self, cpu: usize, task: EntityRef) {
        self.cpus[cpu].mailbox.store(task.addr(), Ordering::Release);
        self.unpark(cpu);
    }
}
