//! The share of a CPU that a sleeping agent may take.
//!
//! An agent has priority over the threads that it schedules: what it takes, they lose. An agent that is woken for
//! every event, or that is due again at once, would leave them nothing, and they would never get to a point where
//! it has no more to do. So it takes at most [`SHARE`] of a CPU, and rests for [`REST`] if nothing but time calls
//! it.

use heddle_core::Ns;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most that an agent takes of a CPU, in percent.
pub const SHARE: u64 = 50;

/// How much CPU time it may take beyond its share before it pauses.
const BURST: i64 = 1_000_000;

/// The shortest sleep of an agent that no message wakes: a thread whose quantum is almost over gets the time to end
/// it.
pub(super) const REST: Ns = Ns::from_us(20);

/// What an agent has used, readable by other threads.
#[derive(Debug, Default)]
pub(super) struct Spent {
    cpu: AtomicU64,
    pauses: AtomicU64,
}

impl Spent {
    /// Returns its total CPU time.
    pub fn cpu(&self) -> Ns {
        Ns(self.cpu.load(Relaxed))
    }

    /// Returns how often the agent paused because its share was used up.
    pub fn pauses(&self) -> u64 {
        self.pauses.load(Relaxed)
    }
}

/// The account of one agent: a token bucket of CPU time.
#[derive(Debug)]
pub(super) struct Share<'a> {
    spent: &'a Spent,
    /// CPU time left before it must pause; below zero if it has taken more.
    credit: i64,
    /// The time and the CPU time at the last settlement.
    at: Ns,
    cpu: Ns,
}

impl<'a> Share<'a> {
    /// Opens the account of an agent that begins `now`, with `cpu` used until then.
    pub fn new(spent: &'a Spent, now: Ns, cpu: Ns) -> Share<'a> {
        Share { spent, credit: BURST, at: now, cpu }
    }

    /// Settles a round that ended `now`, with `cpu` used in all. Returns how long the agent must pause, if it must.
    /// Over any time it takes at most [`SHARE`] of that, plus a burst and the length of one round.
    pub fn settle(&mut self, now: Ns, cpu: Ns) -> Option<Ns> {
        let (passed, taken) = (signed(now - self.at), signed(cpu - self.cpu));
        (self.at, self.cpu) = (now, cpu);
        self.spent.cpu.fetch_add(taken.unsigned_abs(), Relaxed);
        let earned = passed.saturating_mul(SHARE as i64) / 100;
        self.credit = self.credit.saturating_add(earned).min(BURST).saturating_sub(taken);
        (self.credit < 0).then(|| {
            self.spent.pauses.fetch_add(1, Relaxed);
            // Until half a burst is there again: otherwise it would pause after each round.
            Ns((BURST / 2 - self.credit).unsigned_abs() * 100 / SHARE)
        })
    }
}

fn signed(time: Ns) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_agent_below_its_share_never_pauses() {
        let spent = Spent::default();
        let mut share = Share::new(&spent, Ns::ZERO, Ns::ZERO);
        for round in 1..10_000 {
            assert_eq!(share.settle(Ns::from_us(50) * round, Ns::from_us(24) * round), None);
        }
        assert_eq!((spent.cpu(), spent.pauses()), (Ns::from_us(24) * 9_999, 0));
    }

    #[test]
    fn a_busy_agent_pauses_half_of_the_time() {
        let spent = Spent::default();
        let (mut now, mut cpu) = (Ns::ZERO, Ns::ZERO);
        let mut share = Share::new(&spent, now, cpu);
        while now < Ns::from_secs(1) {
            (now, cpu) = (now + Ns::from_us(30), cpu + Ns::from_us(30));
            now = now + share.settle(now, cpu).unwrap_or(Ns::ZERO);
        }
        assert!(cpu <= Ns::from_ms(502) && cpu >= Ns::from_ms(495), "{cpu}");
        assert!(spent.pauses() > 100, "{spent:?}");
    }

    proptest! {
        /// Whatever an agent does between two settlements, it has not taken more than its share, a burst and a round.
        #[test]
        fn no_agent_takes_more_than_its_share(
            rounds in prop::collection::vec((0_u64..3_000_000, 0_u64..3_000_000), 1..200)
        ) {
            let spent = Spent::default();
            let (mut now, mut cpu, mut longest) = (Ns::ZERO, Ns::ZERO, 0);
            let mut share = Share::new(&spent, now, cpu);
            for (slept, ran) in rounds {
                (now, cpu) = (now + Ns(slept + ran), cpu + Ns(ran));
                longest = longest.max(ran);
                let most = now.0 * SHARE / 100 + BURST.unsigned_abs() + longest;
                prop_assert!(cpu.0 <= most, "{cpu} of {now}");
                now = now + share.settle(now, cpu).unwrap_or(Ns::ZERO);
            }
            prop_assert_eq!(spent.cpu(), cpu);
        }
    }
}
