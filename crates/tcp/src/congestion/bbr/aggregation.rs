//! Acknowledgements that come together (`BBR.extra_acked` of the draft's version 02).

use heddle_core::Ns;

/// Rounds for which the most counts, at least.
const ROUNDS: u8 = 5;
/// It adds no more to the window than the bandwidth brings in this time.
const LONGEST: Ns = Ns::from_ms(100);

/// How much more is acknowledged at times than the bandwidth explains. As much more must be in flight, or nothing can
/// be sent until the next acknowledgements come.
#[derive(Debug, Default)]
pub struct Aggregation {
    /// Since when bytes are counted, and how many were acknowledged.
    since: Ns,
    acked: u64,
    /// The most in these rounds, and in those before.
    most: [u32; 2],
    rounds: u8,
}

impl Aggregation {
    pub fn restart(&mut self, now: Ns) {
        (self.since, self.acked) = (now, 0);
    }

    /// `delivered` bytes more have arrived; `is_round`: and a round begins.
    pub fn update(&mut self, now: Ns, delivered: u32, bandwidth: u64, is_round: bool) {
        if delivered == 0 {
            return;
        }
        self.rounds += u8::from(is_round);
        if self.rounds >= ROUNDS {
            (self.most, self.rounds) = ([0, self.most[0]], 0);
        }
        let mut expected = (bandwidth as f64 * (now - self.since).as_secs_f64()) as u64;
        if self.acked <= expected {
            self.restart(now);
            expected = 0;
        }
        self.acked += u64::from(delivered);
        let extra = u32::try_from(self.acked - expected).unwrap_or(u32::MAX);
        self.most[0] = self.most[0].max(extra);
    }

    /// Bytes that the window needs besides.
    pub fn most(&self, bandwidth: u64) -> u32 {
        let limit = (bandwidth as f64 * LONGEST.as_secs_f64()) as u32;
        self.most[0].max(self.most[1]).min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_remembered_for_some_rounds() {
        let mut aggregation = Aggregation::default();
        // 1,000 bytes each millisecond, at first all those of ten together.
        let mut ack = |ms, bytes| aggregation.update(Ns::from_ms(ms), bytes, 1_000_000, true);
        (1..4).for_each(|i| ack(i * 10, 10_000));
        (41..45).for_each(|ms| ack(ms, 1000));
        assert_eq!(aggregation.most(1_000_000), 10_000);
        (45..55).for_each(|ms| aggregation.update(Ns::from_ms(ms), 1000, 1_000_000, true));
        assert!(aggregation.most(1_000_000) < 3_000, "{aggregation:?}");
    }
}
