//! What parts over simulated machines share.

use heddle_agent::policy::Round;
use heddle_core::Ns;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a pass over the CPUs takes that finds nothing to do. The paper's takes 30 us on 256 CPUs.
const PASS: Ns = Ns::from_us(20);

/// The round of an agent at `now`, with the time that it takes if it did nothing. A simulated pass takes none, so an
/// agent that looks again as soon as it can would do so at every nanosecond.
pub(super) fn paced(mut round: Round, now: Ns) -> Round {
    if round.committed == 0 && round.messages == 0 {
        let soon = now + PASS;
        let next = round.next.map(|at| at.max(soon));
        round.next = if round.is_unfinished { Some(soon) } else { next };
        round.is_unfinished = false;
    }
    round
}

/// What threads of a simulation share; none of them panics while it holds the lock.
pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_did_nothing_takes_a_pass() {
        let now = Ns::from_us(100);
        let round = Round { next: Some(now + Ns(1)), ..Round::default() };
        assert_eq!(paced(round, now).next, Some(now + PASS));
        let unfinished = Round { is_unfinished: true, ..Round::default() };
        assert_eq!(paced(unfinished, now), Round { next: Some(now + PASS), ..Round::default() });
        assert_eq!(paced(Round::default(), now).next, None);
        let busy = Round { messages: 1, ..round };
        assert_eq!(paced(busy, now), busy);
    }
}
