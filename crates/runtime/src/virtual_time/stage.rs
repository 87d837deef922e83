//! Who acts: of the driver and the workers one at a time.

use heddle_core::Ns;
use std::sync::{Condvar, Mutex, MutexGuard};

/// What the worker of a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It acts: it runs the scheduler, or a task that does not compute.
    Acts,
    /// It has nothing to run. It looks again at this time, if it is not unparked before.
    Rests { until: Ns },
    /// Its task computes: until this time, and checks at this one whether it must go.
    Computes { until: Ns, looks: Ns },
}

/// Workers come here to rest and to compute, and leave when the driver says so.
pub(super) struct Stage {
    state: Mutex<State>,
    driver: Condvar,
    workers: Box<[Condvar]>,
}

struct State {
    parts: Box<[Part]>,
    is_closed: bool,
}

impl Stage {
    /// For the workers of so many CPUs, all of which act.
    pub(super) fn new(cpus: usize) -> Stage {
        let parts = vec![Part::Acts; cpus].into();
        Stage {
            state: Mutex::new(State { parts, is_closed: false }),
            driver: Condvar::new(),
            workers: (0..cpus).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The worker of `cpu`, which calls this, does this until it may act; false if the stage is closed. Preemption is
    /// off.
    pub(super) fn play(&self, cpu: usize, part: Part) -> bool {
        let mut state = self.lock();
        state.parts[cpu] = part;
        self.driver.notify_one();
        while state.parts[cpu] != Part::Acts && !state.is_closed {
            state = self.workers[cpu].wait(state).unwrap_or_else(|e| e.into_inner());
        }
        !state.is_closed
    }

    /// Waits until no worker acts; what each does instead.
    pub(super) fn settle(&self) -> Box<[Part]> {
        let mut state = self.lock();
        while state.parts.contains(&Part::Acts) {
            state = self.driver.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.parts.clone()
    }

    /// Lets the worker of `cpu` act. None does.
    pub(super) fn call(&self, cpu: usize) {
        self.lock().parts[cpu] = Part::Acts;
        self.workers[cpu].notify_one();
    }

    /// Lets all workers go, for good.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.workers.iter().for_each(Condvar::notify_one);
    }
}
