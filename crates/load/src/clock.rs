//! The clock of a real run.

use super::engine::Clock;
use heddle_core::Ns;
use heddle_sys::clock;
use std::time::Duration;

/// How the loop passes the time until something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Polls: exact, and takes one whole CPU for the length of the run.
    Busy,
    /// Sleeps for up to 50 us, for a CPU shared with the server. Latencies are up to that much too long, plus
    /// the timer's slack.
    Sleep,
    /// Sleeps until something is due, a millisecond at most: for answers that carry their completion time, so
    /// that the generator need not be awake when they arrive.
    Due,
}

impl Pace {
    /// The pace for a load process that has `cpus` CPUs besides the server's: busy if it has at least one.
    pub fn for_spare_cpus(cpus: usize) -> Pace {
        if cpus == 0 { Pace::Sleep } else { Pace::Busy }
    }

    fn longest(self) -> Duration {
        match self {
            Pace::Busy => Duration::ZERO,
            // No longer: an answer can arrive at any time, and is stamped when it is read.
            Pace::Sleep => Duration::from_micros(50),
            Pace::Due => Duration::from_millis(1),
        }
    }
}

/// The time since the run started.
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

    /// The start time by the system's clock.
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
