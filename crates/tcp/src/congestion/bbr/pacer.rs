//! Pacing: segments leave at a rate, in bursts that timers can keep up with.

use heddle_core::Ns;

/// The longest time that a burst makes up for, and the time of one at low rates (`BBR.send_quantum`).
const LONGEST: Ns = Ns::from_ms(1);
/// The largest burst: a large segment.
const LARGEST: u64 = 64 << 10;
/// How far a late burst may exceed the quantum, in quanta.
const LATE: u64 = 4;

/// Says how much may be sent. A quantum goes ahead of the rate; then nothing does until the rate has caught up.
#[derive(Debug)]
pub struct Pacer {
    /// Bytes a second, not zero.
    rate: u64,
    quantum: u32,
    /// When all that was sent would have left at this rate.
    pub next: Ns,
}

impl Pacer {
    pub fn new(rate: u64, mss: u32) -> Pacer {
        let mut pacer = Pacer { rate: 1, quantum: 0, next: Ns::ZERO };
        pacer.set_rate(rate, mss);
        pacer
    }

    pub fn rate(&self) -> u64 {
        self.rate
    }

    pub fn quantum(&self) -> u32 {
        self.quantum
    }

    pub fn set_rate(&mut self, rate: u64, mss: u32) {
        self.rate = rate.clamp(1, 1 << 40);
        self.quantum = (self.rate / 1000).min(LARGEST).max(2 * u64::from(mss)) as u32;
    }

    /// How long `bytes` take.
    fn time(&self, bytes: u64) -> Ns {
        Ns(bytes.saturating_mul(1_000_000_000) / self.rate)
    }

    fn bytes(&self, time: Ns) -> u64 {
        time.0.saturating_mul(self.rate) / 1_000_000_000
    }

    /// Where the schedule stands. What timers and acknowledgements were late is made up for, a longer silence is not.
    fn start(&self, now: Ns) -> Ns {
        let late = (self.time(u64::from(self.quantum)) * LATE).min(LONGEST);
        self.next.max(now - late)
    }

    /// How many bytes may be sent now.
    pub fn budget(&self, now: Ns) -> u32 {
        let (start, quantum) = (self.start(now), u64::from(self.quantum));
        let bytes = if start > now {
            quantum.saturating_sub(self.bytes(start - now))
        } else {
            quantum + self.bytes(now - start)
        };
        bytes as u32
    }

    pub fn sent(&mut self, now: Ns, bytes: u32) {
        self.next = self.start(now) + self.time(bytes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1448;

    /// Sends what may be sent at each of `times`, after that of the pacer; returns the bytes.
    fn send(pacer: &mut Pacer, late: impl Iterator<Item = Ns>) -> (u64, Ns) {
        let (mut sum, mut now) = (0, Ns::from_secs(1));
        pacer.next = now;
        for late in late {
            now = now.max(pacer.next) + late;
            loop {
                let budget = pacer.budget(now);
                if budget == 0 {
                    break;
                }
                let bytes = budget.max(MSS);
                pacer.sent(now, bytes);
                sum += u64::from(bytes);
            }
        }
        (sum, now - Ns::from_secs(1))
    }

    #[test]
    fn late_timers_do_not_slow_it_down() {
        // 8 Gbit/s: a quantum of 64 KiB takes 66 us.
        let mut pacer = Pacer::new(1_000_000_000, MSS);
        assert_eq!(pacer.quantum(), 64 << 10);
        let (sum, took) = send(&mut pacer, (0..1000).map(|i| Ns::from_us(i % 100)));
        let rate = sum as f64 / took.as_secs_f64();
        assert!((0.99e9..1.01e9).contains(&rate), "{rate}");
    }

    #[test]
    fn silence_is_not_made_up_for() {
        for (rate, most) in
            [(1_000_000_000, 5 * 65_536), (10_000_000, 22_000), (1_000, 2 * MSS + 1)]
        {
            let mut pacer = Pacer::new(rate, MSS);
            pacer.sent(Ns::from_secs(1), MSS);
            let budget = pacer.budget(Ns::from_secs(100));
            assert!((2 * MSS..=most).contains(&budget), "{budget} at {rate}");
        }
    }
}
