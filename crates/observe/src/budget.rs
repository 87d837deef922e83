//! How long to watch so that watching stays within its budget.

use heddle_core::Ns;

/// The first window in which the kernel counts the programs' run time.
pub(crate) const CALIBRATION: Ns = Ns::from_ms(200);
/// A window while the budget does not allow to watch all the time.
const WINDOW: Ns = Ns::from_ms(200);
/// The longest pause: what changes meanwhile is seen soon.
const LONGEST_PAUSE: Ns = Ns::from_secs(10);
/// The time of the span programs for a request, until it is measured: as on redis.
const ASSUMED: f64 = 1300.0;
/// Requests that make a measurement.
const ENOUGH: u64 = 100;

/// What was counted up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Requests watched.
    pub(crate) requests: u64,
    /// Switches of all CPUs.
    pub(crate) switches: u64,
}

/// What the programs cost, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prices {
    /// The span programs for a request, while they are on.
    pub(crate) request: f64,
    /// The span program at a switch, while they are on.
    pub(crate) switch: f64,
    /// The program that always runs, at a switch.
    pub(crate) always: f64,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices { request: ASSUMED, switch: 100.0, always: 250.0 }
    }
}

/// Decides when the span programs are on. Time is passed in.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// Of one CPU.
    share: f64,
    prices: Prices,
    /// Since when they are on; else until when they pause.
    on_since: Option<Ns>,
    pause_until: Ns,
    /// Work when the present window, or the stretch of it that was judged last, began.
    before: Work,
    judged_at: Ns,
    cost: f64,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Continue,
    /// End the window.
    Pause,
    /// Begin a window.
    Resume,
}

impl Budget {
    /// Returns a budget of `share` of one CPU. The first window begins now.
    pub(crate) fn new(share: f64, now: Ns, work: Work) -> Budget {
        let prices = Prices::default();
        let (on_since, pause_until) = (Some(now), now);
        Budget { share, prices, on_since, pause_until, before: work, judged_at: now, cost: 0.0 }
    }

    /// Sets the prices by what the kernel counted in the calibration: the run time of the span programs at switches,
    /// of the rest of them, and of the program that always runs.
    pub(crate) fn calibrate(&mut self, times: (u64, u64, u64), done: Work) {
        let each = |time: u64, count: u64, or: f64| match count {
            ENOUGH.. => time as f64 / count as f64,
            _ => or,
        };
        self.prices = Prices {
            request: each(times.1, done.requests, self.prices.request),
            switch: each(times.0, done.switches, self.prices.switch),
            always: each(times.2, done.switches, self.prices.always),
        };
    }

    /// Returns what to do at `now`, when `work` was done so far.
    pub(crate) fn step(&mut self, now: Ns, work: Work) -> Step {
        match self.on_since {
            None if now >= self.pause_until => {
                self.add_cost(work, false);
                (self.on_since, self.judged_at) = (Some(now), now);
                Step::Resume
            }
            None => Step::Continue,
            Some(_) if now.0 - self.judged_at.0 < WINDOW.0 => Step::Continue,
            Some(since) => {
                let spent = self.add_cost(work, true);
                let rate = spent / (now - self.judged_at).0 as f64;
                self.judged_at = now;
                // The window may have been within its budget for long, and then paid for more than this stretch.
                let window = (now - since).0 as f64;
                if rate <= self.share {
                    return Step::Continue;
                }
                let pause = (window.min(WINDOW.0 as f64 * 2.5) * (rate / self.share - 1.0)) as u64;
                self.on_since = None;
                self.pause_until = now + Ns(pause).min(LONGEST_PAUSE);
                Step::Pause
            }
        }
    }

    /// Adds what was spent since the last call, and returns it: of the span programs if they were on.
    fn add_cost(&mut self, work: Work, on: bool) -> f64 {
        let requests = work.requests.saturating_sub(self.before.requests) as f64;
        let switches = work.switches.saturating_sub(self.before.switches) as f64;
        self.before = work;
        let spans =
            if on { requests * self.prices.request + switches * self.prices.switch } else { 0.0 };
        self.cost += spans + switches * self.prices.always;
        spans
    }

    /// Returns the CPU time that the programs took so far.
    pub(crate) fn cost(&mut self, work: Work) -> Ns {
        self.add_cost(work, self.on_since.is_some());
        Ns(self.cost as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds at a rate of requests a second; returns the share of them that was watched and how many windows.
    fn watched(share: f64, per_second: u64) -> (f64, u64) {
        let mut budget = Budget::new(share, Ns::ZERO, Work::default());
        budget.calibrate((0, 1_000_000, 0), Work { requests: 1000, switches: 1000 });
        let (mut work, mut on, mut watched, mut windows) = (Work::default(), true, 0, 1);
        for poll in 1..=200 {
            work.switches += 1000;
            if on {
                work.requests += per_second / 20;
                watched += 1;
            }
            match budget.step(Ns::from_ms(poll * 50), work) {
                Step::Continue => {}
                Step::Pause => on = false,
                Step::Resume => {
                    on = true;
                    windows += 1;
                }
            }
        }
        (f64::from(watched) / 200.0, windows)
    }

    #[test]
    fn at_low_rates_everything_is_one_window() {
        assert_eq!(watched(0.01, 9_000), (1.0, 1));
        assert_eq!(watched(0.02, 19_000), (1.0, 1));
    }

    #[test]
    fn at_high_rates_windows_keep_to_the_budget() {
        // A microsecond a request: 100,000 a second are a tenth of a CPU.
        let (share, windows) = watched(0.01, 100_000);
        assert!((0.05..=0.15).contains(&share), "{share}");
        assert!(windows >= 3, "{windows}");
    }

    #[test]
    fn prices_are_assumed_until_there_is_enough_to_measure() {
        let mut budget = Budget::new(0.01, Ns::ZERO, Work::default());
        budget.calibrate((100, 999_999, 100), Work { requests: 10, switches: 10 });
        assert_eq!(budget.prices, Prices::default());
        budget.calibrate((40_000, 200_000, 80_000), Work { requests: 100, switches: 400 });
        assert_eq!(budget.prices, Prices { request: 2000.0, switch: 100.0, always: 200.0 });
        assert_eq!(budget.cost(Work { requests: 10, switches: 10 }), Ns(20_000 + 1000 + 2000));
    }
}
