//! Samples of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation-02).
//!
//! The draft stores in each segment what was known when it was sent. That changes only when something is delivered, so
//! segments share it: an [`Epoch`] is of all that were sent between two acknowledgements, and a segment finds its own
//! by the time at which it was sent last.

use alloc::collections::VecDeque;
use heddle_core::Ns;

/// What was known when segments were sent (`P.delivered` and the like).
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When the first of them was sent.
    at: Ns,
    delivered: u64,
    delivered_at: Ns,
    first_sent_at: Ns,
    is_app_limited: bool,
}

/// A rate, measured over about a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Bytes a second.
    pub rate: u64,
    /// Bytes that had been delivered when what this acknowledges was sent.
    pub prior_delivered: u64,
    /// The application had too little to send, so the path may be faster.
    pub is_app_limited: bool,
}

/// The state of a connection (`C.delivered` and the like).
#[derive(Debug)]
pub struct Sampler {
    /// Bytes delivered in all.
    pub delivered: u64,
    delivered_at: Ns,
    /// When the segment was sent that arrived last: the sending of the next sample begins there.
    first_sent_at: Ns,
    /// What is sent until so much is delivered is limited by the application; 0 if nothing is.
    app_limited: u64,
    epochs: VecDeque<Epoch>,
}

impl Sampler {
    pub fn new(now: Ns) -> Sampler {
        Sampler {
            delivered: 0,
            delivered_at: now,
            first_sent_at: now,
            app_limited: 0,
            epochs: VecDeque::new(),
        }
    }

    /// The application has no more to send than the `in_flight` bytes that are under way (section 3.4).
    pub fn limit(&mut self, in_flight: u32) {
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    pub fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// A segment is sent (section 3.2). `is_first`: nothing else is in flight.
    pub fn sent(&mut self, now: Ns, is_first: bool) {
        if is_first {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        let next = Epoch {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.is_app_limited(),
        };
        match self.epochs.back_mut() {
            Some(last) if last.at == now => *last = next,
            Some(last) if last.is_same(&next) => {}
            _ => self.epochs.push_back(next),
        }
    }

    /// `delivered` bytes have arrived; of all that have, `sent_at` is the latest time of sending (section 3.3). Samples
    /// over less than `min_rtt` are none: not the retransmission arrived, but what was sent before.
    pub fn acknowledged(
        &mut self,
        now: Ns,
        delivered: u32,
        sent_at: Ns,
        min_rtt: Ns,
    ) -> Option<Sample> {
        self.delivered += u64::from(delivered);
        self.delivered_at = now;
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        while self.epochs.get(1).is_some_and(|next| next.at <= sent_at) {
            self.epochs.pop_front();
        }
        let epoch = *self.epochs.front().filter(|epoch| epoch.at <= sent_at)?;
        self.first_sent_at = sent_at;
        // Acknowledgements that come together hide how long the data was under way, a burst how long it was sent.
        let interval = (sent_at - epoch.first_sent_at).max(now - epoch.delivered_at);
        if interval < min_rtt || interval == Ns::ZERO {
            return None;
        }
        let bytes = self.delivered - epoch.delivered;
        Some(Sample {
            rate: bytes.saturating_mul(1_000_000_000) / interval.0,
            prior_delivered: epoch.delivered,
            is_app_limited: epoch.is_app_limited,
        })
    }

    /// Gives memory back: nothing is in flight.
    pub fn trim(&mut self) {
        self.epochs = VecDeque::new();
    }
}

impl Epoch {
    fn is_same(&self, other: &Epoch) -> bool {
        (self.delivered, self.delivered_at, self.is_app_limited)
            == (other.delivered, other.delivered_at, other.is_app_limited)
    }
}

/// Rounds for which a rate counts (`BBR.BWFilterLen`).
const ROUNDS: usize = 10;

/// The highest rate of the last rounds. Those in which the application had too little to send do not count.
#[derive(Debug, Default)]
pub struct MaxRate {
    rounds: [u64; ROUNDS],
    now: usize,
    is_over: bool,
    highest: u64,
}

impl MaxRate {
    pub fn get(&self) -> u64 {
        self.highest
    }

    pub fn add(&mut self, rate: u64) {
        if core::mem::take(&mut self.is_over) {
            self.now = (self.now + 1) % ROUNDS;
            self.rounds[self.now] = 0;
            self.highest = self.rounds.iter().copied().max().unwrap_or(0);
        }
        let round = &mut self.rounds[self.now];
        *round = rate.max(*round);
        self.highest = self.highest.max(rate);
    }

    /// The round is over; the next one begins with the next rate.
    pub fn end_round(&mut self) {
        self.is_over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Ns = Ns::from_ms(10);

    #[test]
    fn a_sample_is_what_arrives_while_a_segment_is_under_way() {
        let mut sampler = Sampler::new(Ns::ZERO);
        // A segment of 1,000 bytes each millisecond, each under way for ten.
        let mut rates = (0..40).filter_map(|ms| {
            let now = Ns::from_ms(ms);
            let sample = (ms >= 10)
                .then(|| sampler.acknowledged(now, 1000, Ns::from_ms(ms - 10), RTT))
                .flatten();
            sampler.sent(now, ms == 0);
            assert!(sampler.epochs.len() <= 11, "{}", sampler.epochs.len());
            sample
        });
        assert_eq!(rates.next().unwrap().rate, 100_000, "the first is alone in its round trip");
        assert_eq!(rates.last().unwrap().rate, 1_000_000);
    }

    #[test]
    fn acknowledgements_that_come_together_are_no_higher_rate() {
        let mut sampler = Sampler::new(Ns::ZERO);
        (0..10).for_each(|ms| sampler.sent(Ns::from_ms(ms), ms == 0));
        let sample = sampler.acknowledged(Ns::from_ms(20), 10_000, Ns::from_ms(9), RTT).unwrap();
        assert_eq!(sample.rate, 10_000 * 1000 / 20);
        // Retransmissions that seem to have arrived at once: the originals did.
        sampler.sent(Ns::from_ms(21), false);
        sampler.acknowledged(Ns::from_ms(22), 1000, Ns::from_ms(21), RTT);
        sampler.sent(Ns::from_ms(23), false);
        assert_eq!(sampler.acknowledged(Ns::from_ms(24), 1000, Ns::from_ms(23), RTT), None);
    }

    #[test]
    fn what_the_application_limits_is_marked_until_it_is_delivered() {
        let mut sampler = Sampler::new(Ns::ZERO);
        sampler.sent(Ns::ZERO, true);
        sampler.limit(1000);
        sampler.sent(Ns::from_ms(1), false);
        let mut next = |now, sent_at| {
            let sample = sampler.acknowledged(Ns::from_ms(now), 1000, Ns::from_ms(sent_at), RTT);
            sampler.sent(Ns::from_ms(now), false);
            sample.unwrap().is_app_limited
        };
        assert_eq!([next(10, 0), next(12, 1), next(22, 12)], [false, true, false]);
    }

    #[test]
    fn a_rate_counts_for_ten_rounds() {
        let mut max = MaxRate::default();
        max.add(9);
        for _ in 0..9 {
            max.end_round();
            max.add(5);
            assert_eq!(max.get(), 9);
        }
        (0..99).for_each(|_| max.end_round());
        assert_eq!(max.get(), 9, "nothing was measured");
        max.add(5);
        assert_eq!(max.get(), 5);
    }
}
