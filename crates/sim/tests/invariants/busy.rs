//! Work conservation: on one CPU, the work in the system is the same whatever the order of service.

use crate::log::Log;
use crate::policies;
use heddle_core::{Ns, Policy};
use heddle_policies::{Visitor, with_policy};
use heddle_sim::{Scenario, run_watched};

struct Conserves;

impl Visitor for Conserves {
    type Out = bool;

    fn visit<P: Policy>(self, _: P) -> bool {
        P::WORK_CONSERVING
    }
}

/// Returns when the work in the system is used up, for the first few times.
fn emptied(policy: &str) -> Vec<Ns> {
    let mix = "short: 90% 500us, long: 10% 5.5ms".parse().unwrap();
    let scenario = Scenario { requests: 10_000, ..Scenario::ideal(policy, 1, mix, 0.7) };
    let (_, log) = run_watched(&scenario, Log::default()).unwrap();
    log.emptied[..2_500].to_vec()
}

#[test]
fn busy_periods_end_at_the_same_instants_under_every_order() {
    let expected = emptied("fifo");
    let conserving =
        policies().into_iter().filter(|policy| with_policy(policy, Conserves).unwrap());
    let mut compared = 0;
    for policy in conserving {
        assert!(emptied(&policy) == expected, "{policy}");
        compared += 1;
    }
    assert!(compared > 10);
}
