//! The clock of a real run.

use super::engine::Clock;
use heddle_core::Ns;
use heddle_sys::clock;
use std::time::Duration;

/// How the loop passes the time until something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Looks again at once: exact, and takes one whole CPU for as long as the run lasts.
    Busy,
    /// Sleeps for up to 50 us: for a CPU that is shared with the server. Latencies are up to as much
    /// too long, plus what the timer adds.
    Sleep,
    /// Sleeps until something is due, a millisecond at most: for answers that say when they were
    /// complete, so that nobody has to be awake to see them come.
    Due,
}

impl Pace {
    /// What suits a load process that may use `cpus` CPUs besides the server's: busy where it has one.
    pub fn for_spare_cpus(cpus: usize) -> Pace {
        if cpus == 0 { Pace::Sleep } else { Pace::Busy }
    }

    fn longest(self) -> Duration {
        match self {
            Pace::Busy => Duration::ZERO,
            // Not longer: an answer may come at any time, and is stamped when it is read.
            Pace::Sleep => Duration::from_micros(50),
            Pace::Due => Duration::from_millis(1),
        }
    }
}

/// The time since the run began.
#[derive(Debug)]
pub struct RealClock {
    start: Ns,
    pace: Pace,
}

impl RealClock {
    /// Starts the clock.
    pub fn start(pace: Pace) -> RealClock {
        RealClock { start: clock::now(), pace }
    }

    /// When it was started, by the system's clock.
    pub fn started(&self) -> Ns {
        self.start
    }
}

impl Clock for RealClock {
    fn now(&mut self) -> Ns {
        clock::now() - self.start
    }

    fn pause(&mut self, until: Ns) {
        if self.pace == Pace::Busy {
            return std::hint::spin_loop();
        }
        let left = Duration::from(until - self.now());
        std::thread::sleep(left.min(self.pace.longest()));
    }
}
