//! How much of its time a worker was parked, measured in windows.

use heddle_core::Ns;

/// The length of a window.
pub(crate) const WINDOW: Ns = Ns::from_ms(10);

/// How long a worker was parked in the current window.
#[derive(Debug, Default)]
pub(crate) struct Window {
    begin: Ns,
    parked: Ns,
}

impl Window {
    /// The worker was parked for `time`.
    pub fn parked(&mut self, time: Ns) {
        self.parked.0 += time.0;
    }

    /// If the window is over, returns for how many thousandths of it the worker was parked, and starts the
    /// next window.
    pub fn end(&mut self, now: Ns) -> Option<u32> {
        let length = now.0.saturating_sub(self.begin.0);
        if length < WINDOW.0 {
            return None;
        }
        let share = self.parked.0.min(length) as u128 * 1000 / u128::from(length);
        *self = Window { begin: now, parked: Ns::ZERO };
        Some(share as u32)
    }
}

/// A thread has moved to another CPU once it is seen there in this many consecutive windows.
const STAYS: u32 = 20;

/// On which CPU a thread stays: one that the system moves about all the time is nowhere in particular.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    cpu: u32,
    seen: u32,
    windows: u32,
}

impl Stay {
    pub fn on(cpu: u32) -> Stay {
        Stay { cpu, seen: cpu, windows: 0 }
    }

    /// A window ended on `cpu`. Returns it if the thread has moved there.
    pub fn moved(&mut self, cpu: u32) -> Option<u32> {
        self.windows = if cpu == self.seen { self.windows.saturating_add(1) } else { 1 };
        self.seen = cpu;
        let has_moved = cpu != self.cpu && self.windows >= STAYS;
        if has_moved {
            self.cpu = cpu;
        }
        has_moved.then_some(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_measures_its_parked_part() {
        let mut window = Window::default();
        assert_eq!(window.end(WINDOW), Some(0));
        window.parked(Ns(WINDOW.0 / 4));
        assert_eq!(window.end(Ns(WINDOW.0 * 2 - 1)), None);
        assert_eq!(window.end(Ns(WINDOW.0 * 2)), Some(250));
        // Parked since before the window began.
        window.parked(Ns(WINDOW.0 * 9));
        assert_eq!(window.end(Ns(WINDOW.0 * 3)), Some(1000));
    }

    #[test]
    fn a_thread_has_moved_once_it_stays_elsewhere() {
        let mut stay = Stay::on(3);
        let mut seen =
            |cpu, windows| (0..windows).filter_map(|_| stay.moved(cpu)).collect::<Vec<_>>();
        assert_eq!(seen(3, 2 * STAYS), []);
        assert_eq!(seen(5, STAYS - 1), []);
        assert_eq!(seen(3, 1), []);
        assert_eq!(seen(5, STAYS - 1), []);
        assert_eq!(seen(5, 2 * STAYS), [5]);
        assert_eq!(seen(3, STAYS), [3]);
    }

    proptest! {
        /// The shares of all windows add up to the parked time, to a thousandth of each window.
        #[test]
        fn no_parked_time_is_lost(parts in proptest::collection::vec((1u64..30_000_000, 0u64..100), 1..50)) {
            let (mut window, mut now) = (Window::default(), Ns::ZERO);
            for (time, percent) in parts {
                let parked = time * percent / 100;
                let begin = window.begin;
                window.parked(Ns(parked));
                now.0 += time;
                let sum = window.parked.0;
                if let Some(share) = window.end(now) {
                    let exact = sum as f64 / (now.0 - begin.0) as f64 * 1000.0;
                    prop_assert!((f64::from(share) - exact).abs() <= 1.0);
                }
            }
        }
    }
}
