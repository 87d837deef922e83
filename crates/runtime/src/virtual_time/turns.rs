//! Turn-taking: of the driver and the workers, one is active at a time.

use heddle_core::Ns;
use std::sync::{Condvar, Mutex, MutexGuard};

/// What the worker of a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Runs the scheduler, or a task that does not compute.
    Active,
    /// Has nothing to run. Checks again at this time, if it is not unparked before.
    Idle { until: Ns },
    /// Its task computes `until` this time, and at `check_at` checks whether it must yield.
    Computing { until: Ns, check_at: Ns },
}

/// Suspends workers that are idle or compute, until the driver resumes them.
pub(super) struct Turns {
    state: Mutex<State>,
    driver: Condvar,
    workers: Box<[Condvar]>,
}

struct State {
    activities: Box<[Activity]>,
    is_closed: bool,
}

impl Turns {
    /// Returns one for the workers of `cpus` CPUs, all of them active.
    pub(super) fn new(cpus: usize) -> Turns {
        let activities = vec![Activity::Active; cpus].into();
        Turns {
            state: Mutex::new(State { activities, is_closed: false }),
            driver: Condvar::new(),
            workers: (0..cpus).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Puts the caller, the worker of `cpu`, into `activity` until it is resumed. Returns false if the turns are over.
    /// Preemption is off.
    pub(super) fn wait_turn(&self, cpu: usize, activity: Activity) -> bool {
        let mut state = self.lock();
        state.activities[cpu] = activity;
        self.driver.notify_one();
        while state.activities[cpu] != Activity::Active && !state.is_closed {
            state = self.workers[cpu].wait(state).unwrap_or_else(|e| e.into_inner());
        }
        !state.is_closed
    }

    /// Waits until no worker is active. Returns what each is doing.
    pub(super) fn wait_until_none_active(&self) -> Box<[Activity]> {
        let mut state = self.lock();
        while state.activities.contains(&Activity::Active) {
            state = self.driver.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.activities.clone()
    }

    /// Makes the worker of `cpu` active. No other worker is.
    pub(super) fn resume(&self, cpu: usize) {
        self.lock().activities[cpu] = Activity::Active;
        self.workers[cpu].notify_one();
    }

    /// Releases all workers for good.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.workers.iter().for_each(Condvar::notify_one);
    }
}
