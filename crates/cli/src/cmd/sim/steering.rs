//! Steering policies, the very ones that are deployed, in front of a simulated machine.

use std::path::Path;

use anyhow::{Context as _, ensure};
use heddle_core::{Model, Policy};
use heddle_policies::{Visitor, with_policy};
use heddle_sim::Scenario;
use heddle_steer::native::{MAX_EXECUTORS, NativePolicy, Simulated};
use heddle_steer::policy::split_params;

/// The thread policy under which each CPU serves its own queue in order.
pub const QUEUES: &str = "best-of-two";

/// The operations of Heddle's datagrams that requests are seen as.
const GET: u8 = 1;
const SCAN: u8 = 3;

/// The steering policy that `text` names, for `scenario`.
pub fn open(text: &str, scenario: &Scenario) -> anyhow::Result<Simulated> {
    let cpus = scenario.machine.cpus;
    ensure!(cpus <= MAX_EXECUTORS, "--steer takes at most {MAX_EXECUTORS} CPUs, not {cpus}");
    let shares_a_queue = with_policy(&scenario.policy, SharesAQueue)?;
    ensure!(
        !shares_a_queue,
        "--steer {text} --policy {policy}: all CPUs serve one queue under that policy, so it makes no difference which CPU a \
         request is steered to. Leave --policy away, and each CPU serves its own queue in order, or name a policy with a queue \
         for each CPU, such as work-stealing (heddle policies)",
        policy = scenario.policy
    );
    let (name, params) = split_params(text);
    ensure!(
        name != "class",
        "--steer class: its executors are queues that every CPU pulls from (late binding), which no CPU has of its own here; \
         a central thread policy is that: --policy sjf"
    );
    ensure!(
        name != "token",
        "--steer token: nobody gives out tokens in the simulator, so all would be dropped"
    );
    let policy = match name.contains('/') || name.ends_with(".c") {
        true => NativePolicy::compile(Path::new(name), params),
        false => NativePolicy::shipped(name, params),
    };
    Ok(Simulated::new(policy.with_context(|| format!("--steer {text}"))?, types(scenario)))
}

/// Whether a policy has one queue for all CPUs.
struct SharesAQueue;

impl Visitor for SharesAQueue {
    type Out = bool;

    fn visit<P: Policy>(self, _: P) -> bool {
        P::MODEL == Model::Central
    }
}

/// The part of the mix that takes longest is a SCAN, the others are GETs.
fn types(scenario: &Scenario) -> Vec<u8> {
    let means: Vec<f64> = scenario.mix.parts().iter().map(|part| part.service.mean()).collect();
    let longest = means.iter().copied().fold(0.0, f64::max);
    let single = means.len() == 1;
    means.iter().map(|mean| if *mean == longest && !single { SCAN } else { GET }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(mix: &str, cpus: usize) -> Scenario {
        Scenario::ideal(QUEUES, cpus, mix.parse().unwrap(), 0.5)
    }

    #[test]
    fn the_part_that_takes_longest_is_seen_as_scans() {
        assert_eq!(types(&scenario("get: 50% 1us, put: 49% 2us, scan: 1% 100us", 2)), [1, 1, 3]);
        assert_eq!(types(&scenario("1us", 2)), [1]);
    }

    #[test]
    fn sita_keeps_short_requests_from_waiting_for_long_ones_in_the_simulator_too() {
        let mut scenario = scenario("get: 99.5% 11us, scan: 0.5% 700us", 6);
        scenario.requests = 50_000;
        let p99 = |steer| {
            let mut policy = open(steer, &scenario).unwrap();
            let outcome = heddle_sim::run_steered(&scenario, &mut policy).unwrap();
            outcome.parts[0].response.percentile(99.0).0
        };
        let (hash, sita) = (p99("hash"), p99("sita:reserved=2"));
        assert!(hash > 5 * sita, "hash {hash} ns, sita {sita} ns");
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let refused =
            |text, cpus| open(text, &scenario("1us", cpus)).map(drop).unwrap_err().to_string();
        assert!(refused("class", 2).contains("late binding"));
        assert!(refused("token", 2).contains("nobody gives out tokens"));
        assert!(refused("hash", 65).contains("at most 64"));
    }

    #[test]
    fn a_policy_with_one_queue_for_all_leaves_nothing_to_steer() {
        let with = |policy: &str| {
            let scenario = Scenario { policy: policy.into(), ..scenario("1us", 2) };
            open("hash", &scenario).map(drop)
        };
        for policy in ["fifo", "sjf", "shinjuku:quantum=5us"] {
            let said = with(policy).unwrap_err().to_string();
            assert!(said.contains(policy) && said.contains("Leave --policy away"), "{said}");
        }
        for policy in [QUEUES, "work-stealing", "two-queue"] {
            assert!(with(policy).is_ok(), "{policy}");
        }
    }
}
