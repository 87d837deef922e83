//! Seeds: what they fix, and what they leave to the policy.

use crate::log::Log;
use crate::policies;
use heddle_sim::{Machine, Scenario, run, run_watched};

const BIMODAL: &str = "short: 90% 5us, long: 10% 55us";

fn scenario(policy: &str) -> Scenario {
    let machine = Machine { cpus: 8, smt: 2, llc: 4, node: 8 };
    let ideal = Scenario::ideal(policy, 8, BIMODAL.parse().unwrap(), 0.6);
    Scenario { machine, requests: 3_000, seed: 7, ..ideal }
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    for policy in policies() {
        let scenario = scenario(&policy);
        let once = run(&scenario).unwrap();
        assert_eq!(once, run(&scenario).unwrap(), "{policy}");
        assert_ne!(once, run(&Scenario { seed: 8, ..scenario }).unwrap(), "{policy}");
    }
}

/// Common random numbers: a comparison of policies does not compare arrivals.
#[test]
fn every_policy_sees_the_same_arrivals_and_sizes() {
    let of = |policy: &str| {
        let (outcome, log) = run_watched(&scenario(policy), Log::default()).unwrap();
        let arrivals: Vec<_> = log.tasks[..3_300].iter().map(|task| task.arrived).collect();
        // Each part has one size: equal counts per part mean equal work per size.
        let parts: Vec<_> = outcome.parts.iter().map(|part| part.response.count()).collect();
        (arrivals, parts)
    };
    let expected = of("fifo");
    for policy in policies() {
        assert!(of(&policy) == expected, "{policy}");
    }
}
