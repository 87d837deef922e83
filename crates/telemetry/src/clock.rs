//! Times of events: the writer stores the time stamp counter, and the reader converts it to `CLOCK_MONOTONIC` by two
//! moments at which both were read. The longer ago the first, the better it knows the rate.

use heddle_core::Ns;
use heddle_sys::clock;

/// The clock of a page's events, by its number in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The time stamp counter.
    Ticks = 1,
    /// `CLOCK_MONOTONIC`: where the counter does not pass at the same rate everywhere.
    Ns = 2,
}

impl Clock {
    pub fn of(number: u32) -> Option<Clock> {
        [Clock::Ticks, Clock::Ns].into_iter().find(|&clock| clock as u32 == number)
    }

    /// Returns the clock that this machine's pages use.
    pub fn of_machine() -> Clock {
        if clock::is_steady() { Clock::Ticks } else { Clock::Ns }
    }

    /// Returns the time by this clock.
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self {
            Clock::Ticks => clock::ticks(),
            Clock::Ns => clock::now().0,
        }
    }

    /// Returns a duration by this clock, accurate to 0.1 %.
    pub fn duration(self, time: Ns) -> u64 {
        match self {
            Clock::Ticks => clock::ns_to_ticks(time),
            Clock::Ns => time.0,
        }
    }
}

/// Returns when, by this clock, `time` from now on is over; never 0.
pub(crate) fn deadline(clock: Clock, time: Ns) -> u64 {
    clock.now().saturating_add(clock.duration(time)).max(1)
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub ns: u64,
    pub ticks: u64,
}

impl Anchor {
    /// Returns this moment: of a few tries, the one that took the least time.
    pub fn now() -> Anchor {
        let look = |_| {
            let (before, ns, after) = (clock::ticks(), clock::now().0, clock::ticks());
            (after.saturating_sub(before), Anchor { ns, ticks: before.midpoint(after) })
        };
        let looks: [_; 5] = std::array::from_fn(look);
        looks.into_iter().min_by_key(|(took, _)| *took).map_or(looks[0].1, |(_, anchor)| anchor)
    }

    /// Returns the time of `ticks` in ns, at a rate known from `earlier` and this moment. Both numbers may be anything:
    /// if such a rate cannot be, this machine's is used.
    pub fn ns_of(self, ticks: u64, earlier: Anchor) -> u64 {
        let ns = self.ns.saturating_sub(earlier.ns);
        let counted = self.ticks.saturating_sub(earlier.ticks);
        let can_be = ns > 0 && counted > 0 && counted / 100 <= ns && ns / 100 <= counted;
        let distance = if can_be {
            let exact =
                u128::from(self.ticks.abs_diff(ticks)) * u128::from(ns) / u128::from(counted);
            u64::try_from(exact).unwrap_or(u64::MAX)
        } else {
            clock::ticks_to_ns(self.ticks.abs_diff(ticks)).0
        };
        match ticks <= self.ticks {
            true => self.ns.saturating_sub(distance),
            false => self.ns.saturating_add(distance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_between_two_moments_are_interpolated() {
        let (earlier, later) = (Anchor { ns: 1000, ticks: 50 }, Anchor { ns: 2000, ticks: 2050 });
        let times = [50, 1050, 2050, 2250].map(|ticks| later.ns_of(ticks, earlier));
        assert_eq!(times, [1000, 1500, 2000, 2100]);
    }

    proptest! {
        #[test]
        fn any_numbers_give_a_time(ns in any::<[u64; 2]>(), of in any::<[u64; 2]>(), ticks in any::<u64>()) {
            let [earlier, later] = [0, 1].map(|i| Anchor { ns: ns[i], ticks: of[i] });
            let time = later.ns_of(ticks, earlier);
            prop_assert_eq!(time <= later.ns || ticks > later.ticks, true);
        }
    }
}
