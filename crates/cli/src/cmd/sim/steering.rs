//! Steering policies, the same code that is deployed, in front of a simulated machine.

use std::path::Path;

use anyhow::{Context as _, ensure};
use heddle_core::{Model, Policy};
use heddle_policies::{Visitor, with_policy};
use heddle_sim::Scenario;
use heddle_sim::workload::{Arrivals, TraceReader};
use heddle_steer::native::{MAX_EXECUTORS, NativePolicy, Simulated};
use heddle_steer::policy::split_params;

/// The thread policy under which each CPU serves its own queue in order.
pub const QUEUES: &str = "best-of-two";

/// The datagram operations that simulated requests appear as.
const GET: u8 = 1;
const SCAN: u8 = 3;

/// Opens the steering policy that `text` names, for `scenario`.
pub fn open(text: &str, scenario: &Scenario) -> anyhow::Result<Simulated> {
    let cpus = scenario.machine.cpus;
    ensure!(cpus <= MAX_EXECUTORS, "--steer takes at most {MAX_EXECUTORS} CPUs, not {cpus}");
    let shares_a_queue = with_policy(&scenario.policy, SharesAQueue)?;
    ensure!(
        !shares_a_queue,
        "--steer {text} --policy {policy}: all CPUs serve one queue under that policy, so it makes no difference \
         which CPU a request is steered to. Omit --policy, and each CPU serves its own queue in order, or name a \
         policy with a queue per CPU, such as work-stealing (heddle policies)",
        policy = scenario.policy
    );
    let (name, params) = split_params(text);
    ensure!(
        name != "class",
        "--steer class: its executors are queues that every CPU pulls from (late binding), while here each CPU has \
         its own; use a central thread policy instead: --policy sjf"
    );
    ensure!(
        name != "token",
        "--steer token: nothing issues tokens in the simulator, so all requests would be dropped"
    );
    let policy = match name.contains('/') || name.ends_with(".c") {
        true => NativePolicy::compile(Path::new(name), params),
        false => NativePolicy::shipped(name, params),
    };
    Ok(Simulated::new(policy.with_context(|| format!("--steer {text}"))?, types(&means(scenario)?)))
}

/// Visitor: whether a policy has one queue for all CPUs.
struct SharesAQueue;

impl Visitor for SharesAQueue {
    type Out = bool;

    fn visit<P: Policy>(self, _: P) -> bool {
        P::MODEL == Model::Central
    }
}

/// Returns the mean service times of the kinds of requests: of the trace, if the requests are one's, else of the mix.
fn means(scenario: &Scenario) -> anyhow::Result<Vec<f64>> {
    let Arrivals::Trace(file) = &scenario.arrivals else {
        return Ok(scenario.mix.parts().iter().map(|part| part.service.mean()).collect());
    };
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for request in TraceReader::open(file)? {
        let request = request?;
        sums.resize(sums.len().max(request.kind + 1), (0.0, 0.0));
        let (sum, count) = &mut sums[request.kind];
        (*sum, *count) = (*sum + request.service.0 as f64, *count + 1.0);
    }
    Ok(sums.into_iter().map(|(sum, count)| sum / count.max(1.0)).collect())
}

/// Maps the longest kind to SCANs, the others to GETs.
fn types(means: &[f64]) -> Vec<u8> {
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
    fn the_longest_part_is_seen_as_scans() {
        let of = |mix| types(&means(&scenario(mix, 2)).unwrap());
        assert_eq!(of("get: 50% 1us, put: 49% 2us, scan: 1% 100us"), [1, 1, 3]);
        assert_eq!(of("1us"), [1]);
    }

    #[test]
    fn the_kinds_of_a_trace_are_its_own() {
        let folder = heddle_test_support::temp_dir();
        let file = folder.path().join("trace.csv");
        std::fs::write(&file, "arrival,service,name\n0,700us,scan\n5us,9us,get\n9us,1us,get\n")
            .unwrap();
        let mut scenario = scenario("get: 99% 1us, scan: 1% 100us", 2);
        scenario.arrivals = Arrivals::Trace(file);
        assert_eq!(types(&means(&scenario).unwrap()), [3, 1]);
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
    fn policies_that_cannot_be_simulated_are_refused() {
        let refused =
            |text, cpus| open(text, &scenario("1us", cpus)).map(drop).unwrap_err().to_string();
        assert!(refused("class", 2).contains("late binding"));
        assert!(refused("token", 2).contains("nothing issues tokens"));
        assert!(refused("hash", 1025).contains("at most 1024"));
    }

    #[test]
    fn a_policy_with_one_queue_for_all_leaves_nothing_to_steer() {
        let with = |policy: &str| {
            let scenario = Scenario { policy: policy.into(), ..scenario("1us", 2) };
            open("hash", &scenario).map(drop)
        };
        for policy in ["fifo", "sjf", "shinjuku:quantum=5us"] {
            let said = with(policy).unwrap_err().to_string();
            assert!(said.contains(policy) && said.contains("Omit --policy"), "{said}");
        }
        for policy in [QUEUES, "work-stealing", "two-queue"] {
            assert!(with(policy).is_ok(), "{policy}");
        }
    }
}
