//! The clock of a real run.

use super::engine::Clock;
use heddle_core::Ns;
use std::time::{Duration, Instant};

/// How the loop passes the time until something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Looks again at once: exact, and takes one whole CPU for as long as the run lasts.
    Busy,
    /// Sleeps for up to 50 us: for a CPU that is shared with the server. Latencies are up to as much
    /// too long, plus what the timer adds.
    Sleep,
}

impl Pace {
    /// What suits a load process that may use `cpus` CPUs besides the server's: busy where it has one.
    pub fn for_spare_cpus(cpus: usize) -> Pace {
        if cpus == 0 { Pace::Sleep } else { Pace::Busy }
    }
}

/// The time since the run began.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
    pace: Pace,
}

impl RealClock {
    /// Starts the clock.
    pub fn start(pace: Pace) -> RealClock {
        RealClock { start: Instant::now(), pace }
    }
}

impl Clock for RealClock {
    fn now(&mut self) -> Ns {
        self.start.elapsed().into()
    }

    fn pause(&mut self, until: Ns) {
        if self.pace == Pace::Busy {
            return std::hint::spin_loop();
        }
        // Not longer: an answer may come at any time, and is stamped when it is read.
        let left = Duration::from(until - self.now());
        std::thread::sleep(left.min(Duration::from_micros(50)));
    }
}
