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
    /// 1 if it has parked and not run a task since. Perhaps others rely on it to poll.
    seeks: AtomicU32,
}

/// See the module's text.
#[derive(Debug)]
pub struct Parking {
    idle: IdleSet,
    workers: Box<[Worker]>,
    /// Hands tasks to workers, where there is one; workers then leave the poll to it.
    dispatcher: Option<Parker>,
    ticker: Parker,
}

impl Parking {
    /// For as many workers as there are `cpus`.
    pub fn new(cpus: usize, has_dispatcher: bool) -> Parking {
        Parking {
            idle: IdleSet::new(cpus),
            workers: (0..cpus).map(|_| Worker::default()).collect(),
            dispatcher: has_dispatcher.then(Parker::default),
            ticker: Parker::default(),
        }
    }

    /// Workers that are parked or about to be.
    #[inline]
    pub fn idle(&self) -> &IdleSet {
        &self.idle
    }

    /// Parks the worker of `cpu` until it is unparked, data or a timer comes, or for `at_most`. Not at all if there
    /// `is_work` once the worker is in the idle set. Whether it parked.
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
        // If another thread took us out of the set, it unparks us: that must not meet our next parking.
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
        // The fence in here is between the end of our poll and the caller's look for work, too: a thread that set a
        // timer and took us for the poller is seen by that look.
        self.ticker.unpark_if_parked(driver);
        parks
    }

    /// The worker of `cpu` goes to work, or sees that there is some. If it has parked since it last did, another worker
    /// is needed: for more work than one takes, and to poll. Not to be called without work: two workers would unpark
    /// each other forever.
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

    /// Unparks the worker of `cpu` if it is idle. The caller has written before what the worker looks at.
    #[inline]
    pub fn unpark(&self, driver: &impl Driver, cpu: usize) -> bool {
        fence(Ordering::SeqCst);
        let idle = self.idle.contains(cpu) && self.idle.unmark(cpu);
        if idle {
            self.workers[cpu].parker.unpark(driver);
        }
        idle
    }

    /// Unparks one idle worker; false if there is none. The caller has written before what workers look at.
    #[inline]
    pub fn unpark_any(&self, driver: &impl Driver) -> bool {
        let idle = self.idle.take_any();
        idle.map(|cpu| self.workers[cpu].parker.unpark(driver)).is_some()
    }

    /// Unparks all idle workers; false if there is none.
    pub fn unpark_all(&self, driver: &impl Driver) -> bool {
        let mut any = false;
        while self.unpark_any(driver) {
            any = true;
        }
        any
    }

    /// Unparks the worker of `cpu`, or keeps it from parking once, whether it is idle or not.
    pub fn notify(&self, driver: &impl Driver, cpu: usize) {
        self.idle.unmark(cpu);
        self.workers[cpu].parker.unpark(driver);
    }

    /// A timer was set that is the earliest: the thread that sleeps in the poll sleeps too long. If none does, an
    /// idle worker must.
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

    /// A source was registered: an idle worker must poll, if there is one and no thread polls.
    pub fn source_is_new(&self, driver: &impl Driver) {
        fence(Ordering::SeqCst);
        if self.dispatcher.is_none() && !driver.is_attended() {
            self.unpark_any(driver);
        }
    }

    /// Parks the dispatcher until a task queues, a worker waits, or data or a timer comes; not at all if a round is
    /// `due`.
    pub fn park_dispatcher(&self, driver: &impl Driver, due: impl FnOnce() -> bool) {
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.park_polling_unless(driver, due);
        }
    }

    /// Unparks the dispatcher. The caller has changed what it looks at.
    #[inline]
    pub fn unpark_dispatcher(&self, driver: &impl Driver) {
        if let Some(dispatcher) = &self.dispatcher {
            dispatcher.unpark_if_parked(driver);
        }
    }

    /// Parks the ticker until a worker runs; not at all if one does, or if it must `stop`.
    pub fn park_ticker(&self, stop: impl FnOnce() -> bool) {
        let runs = |cpu| !self.idle.contains(cpu);
        self.ticker.park_unless(|| stop() || (0..self.workers.len()).any(runs));
    }

    /// Unparks the ticker. The caller has changed what it looks at.
    pub fn unpark_ticker(&self, driver: &impl Driver) {
        self.ticker.unpark_if_parked(driver);
    }
}
