//! All threads of a runtime that park: workers, the dispatcher, the ticker.

use super::{Driver, Parker};
use crate::IdleSet;
use crate::atomic::{AtomicU32, Ordering, fence};
use heddle_core::Ns;

/// The worker that serves a CPU.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Worker {
    parker: Parker,
    /// 1 if it has parked and has not run a task since. Other threads may rely on it to poll.
    seeks: AtomicU32,
}

/// See the module docs.
#[derive(Debug)]
pub struct Parking {
    idle: IdleSet,
    workers: Box<[Worker]>,
    /// Hands tasks to workers, if there is one; workers then leave the poll to it.
    dispatcher: Option<Parker>,
    ticker: Parker,
}

impl Parking {
    /// Returns the state for one worker per CPU.
    pub fn new(cpus: usize, has_dispatcher: bool) -> Parking {
        Parking {
            idle: IdleSet::new(cpus),
            workers: (0..cpus).map(|_| Worker::default()).collect(),
            dispatcher: has_dispatcher.then(Parker::default),
            ticker: Parker::default(),
        }
    }

    /// Returns the workers that are parked or about to park.
    #[inline]
    pub fn idle(&self) -> &IdleSet {
        &self.idle
    }

    /// Parks the worker of `cpu` until it is unparked, data arrives, a timer expires, or `at_most` has passed. Does not
    /// park if there `is_work` once the worker is in the idle set. Returns whether it parked.
    pub fn park(
        &self,
        driver: &impl Driver,
        cpu: usize,
        at_most: Ns,
        is_work: impl FnOnce() -> bool,
    ) -> bool {
        let Worker { parker, seeks } = &self.workers[cpu];
        self.idle.mark(cpu);
        self.unpark_dispatcher(driver);
        // If another thread took us out of the set, it unparks us: that must not hit our next parking.
        let parks = !(is_work() && self.idle.unmark(cpu));
        if parks {
            match self.dispatcher {
                Some(_) => parker.park(at_most),
                None => parker.park_polling(driver, at_most),
            }
            self.idle.unmark(cpu);
        }
        parker.reset();
        seeks.store(1, Ordering::Relaxed);
        // The fence in here also separates the end of our poll from the caller's check for work: that check sees a
        // thread that set a timer and took us for the poller.
        self.ticker.unpark_if_parked(driver);
        parks
    }

    /// Called when the worker of `cpu` goes to work, or sees that there is some. If it has parked since it last did,
    /// another worker is needed: for more work than one takes, and to poll. Must not be called without work: two
    /// workers would unpark each other forever.
    #[inline]
    pub fn works(&self, driver: &impl Driver, cpu: usize) {
        let seeks = &self.workers[cpu].seeks;
        if seeks.load(Ordering::Relaxed) == 1 {
            seeks.store(0, Ordering::Relaxed);
            if self.dispatcher.is_none() {
                self.unpark_any(driver);
            }
        }
    }

    /// Unparks the worker of `cpu` if it is idle. The caller has already changed the state that the worker checks.
    #[inline]
    pub fn unpark(&self, driver: &impl Driver, cpu: usize) -> bool {
        fence(Ordering::SeqCst);
        let idle = self.idle.contains(cpu) && self.idle.unmark(cpu);
        if idle {
            self.workers[cpu].parker.unpark(driver);
        }
        idle
    }

    /// Unparks one idle worker. Returns false if there is none. The caller has already changed the state that workers
    /// check.
    #[inline]
    pub fn unpark_any(&self, driver: &impl Driver) -> bool {
        let idle = self.idle.take_any();
        idle.map(|cpu| self.workers[cpu].parker.unpark(driver)).is_some()
    }

    /// Unparks all idle workers. Returns false if there is none.
    pub fn unpark_all(&self, driver: &impl Driver) -> bool {
        let mut any = false;
        while self.unpark_any(driver) {
            any = true;
        }
        any
    }

    /// Unparks the worker of `cpu`, or prevents it from parking once, whether it is idle or not.
    pub fn notify(&self, driver: &impl Driver, cpu: usize) {
        self.idle.unmark(cpu);
        self.workers[cpu].parker.unpark(driver);
    }

    /// Called when a new timer is the earliest: the thread in the poll would sleep too long. If no thread is in the
    /// poll, an idle worker must enter it.
    pub fn timer_is_earlier(&self, driver: &impl Driver) {
        if let Some(dispatcher) = &self.dispatcher {
            return dispatcher.unpark_if_parked(driver);
        }
        fence(Ordering::SeqCst);
        match driver.is_attended() {
            true => driver.ring(),
            false => drop(self.unpark_any(driver)),
        }
    }

    /// Called when a source was registered: an idle worker, if there is one, must poll if no thread does.
    pub fn source_is_new(&self, driver: &impl Driver) {
        fence(Ordering::SeqCst);
        if self.dispatcher.is_none() && !driver.is_attended() {
            self.unpark_any(driver);
        }
    }

    /// Parks the dispatcher until a task is queued, a worker waits, data arrives or a timer expires; does not park if a
    /// round is `due`.
    pub fn park_dispatcher(&self, driver: &impl Driver, due: impl FnOnce() -> bool) {
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.park_polling_unless(driver, due);
        }
    }

    /// Unparks the dispatcher. The caller has already changed the state that it checks.
    #[inline]
    pub fn unpark_dispatcher(&self, driver: &impl Driver) {
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.unpark_if_parked(driver);
        }
    }

    /// Parks the ticker until a worker runs; does not park if one does, or if the ticker must `stop`.
    pub fn park_ticker(&self, stop: impl FnOnce() -> bool) {
        let runs = |cpu| !self.idle.contains(cpu);
        self.ticker.park_unless(|| stop() || (0..self.workers.len()).any(runs));
    }

    /// Unparks the ticker. The caller has already changed the state that it checks.
    pub fn unpark_ticker(&self, driver: &impl Driver) {
        self.ticker.unpark_if_parked(driver);
    }
}
