//! The retransmission timeout (RFC 6298), with a clock of nanoseconds.

use heddle_core::Ns;

/// The timeout before the first measurement (RFC 6298, section 2.1).
pub const INITIAL: Ns = Ns::from_secs(1);

/// Smoothed round-trip time, its variation, and the smallest time measured, in units of 16 ns: up to 68 s.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    srtt: u32,
    variation: u32,
    min: u32,
}

fn units(time: Ns) -> u32 {
    u32::try_from(time.0 >> 4).unwrap_or(u32::MAX).max(1)
}

fn time(units: u32) -> Ns {
    Ns(u64::from(units) << 4)
}

impl Rtt {
    pub const fn new() -> Rtt {
        Rtt { srtt: 0, variation: 0, min: u32::MAX }
    }

    /// Takes a measurement (RFC 6298, sections 2.2 and 2.3).
    pub fn sample(&mut self, rtt: Ns) {
        let rtt = units(rtt);
        self.min = self.min.min(rtt);
        if self.srtt == 0 {
            (self.srtt, self.variation) = (rtt, rtt / 2);
            return;
        }
        let deviation = self.srtt.abs_diff(rtt);
        self.variation = self.variation - self.variation / 4 + deviation / 4;
        self.srtt = (self.srtt - self.srtt / 8 + rtt / 8).max(1);
    }

    /// The smoothed round-trip time; `None` before the first measurement.
    pub fn smoothed(&self) -> Option<Ns> {
        (self.srtt > 0).then(|| time(self.srtt))
    }

    /// The smoothed mean deviation.
    pub fn variation(&self) -> Ns {
        time(self.variation)
    }

    /// The smallest measurement; [`Ns::MAX`] before the first.
    pub fn min(&self) -> Ns {
        if self.min == u32::MAX { Ns::MAX } else { time(self.min) }
    }

    /// The timeout within `min..=max` (RFC 6298, sections 2.3 to 2.5).
    pub fn timeout(&self, min: Ns, max: Ns) -> Ns {
        let Some(srtt) = self.smoothed() else { return INITIAL.clamp(min, max.max(min)) };
        // Linux: the variation counts at least as much as the smallest timeout, so the timer never expires within one
        // round trip of steady length.
        (srtt + (self.variation() * 4).max(min)).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Ns = Ns::from_ms(5);
    const MAX: Ns = Ns::from_secs(120);

    #[test]
    fn the_first_sample_sets_both() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.timeout(MIN, MAX), INITIAL);
        rtt.sample(Ns::from_ms(100));
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(Ns::from_ms(100)), Ns::from_ms(50)));
        assert_eq!(rtt.timeout(MIN, MAX), Ns::from_ms(300));
    }

    #[test]
    fn steady_samples_end_at_the_minimum() {
        let mut rtt = Rtt::new();
        (0..100).for_each(|_| rtt.sample(Ns::from_us(20)));
        assert!(rtt.variation() < Ns(100), "{:?}", rtt);
        assert_eq!(rtt.timeout(MIN, MAX), MIN + rtt.smoothed().unwrap());
        assert_eq!(rtt.timeout(Ns::from_secs(500), MAX), MAX);
    }
}
