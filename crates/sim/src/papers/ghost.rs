//! ghOSt, Fig. 6a: the same requests behind a RocksDB GET of about 6 us, on 20 CPUs.

use super::costs;
use super::finding::Finding;
use super::skyloft_synthetic::P99;
use super::study::Study;
use crate::costs::{Costs, Dispatcher, Preemption};
use crate::{Scenario, SimError};
use heddle_core::Ns;

/// The three systems: policy, costs, dispatcher, preemption.
fn systems() -> [(&'static str, &'static str, Costs, Option<Dispatcher>, Preemption); 3] {
    let (user, agent) = (Some(costs::USER_DISPATCHER), Some(costs::GHOST_AGENT));
    let of_agent = Costs { switch: Ns(0), wake: Ns(0), ..costs::LINUX };
    let quantum = "shinjuku:quantum=30us";
    [
        ("Shinjuku", quantum, costs::USER_SWITCH, user, costs::SHINJUKU_IPI),
        ("ghOSt-Shinjuku", quantum, of_agent, agent, costs::GHOST_PREEMPTION),
        ("CFS-Shinjuku", "fifo", costs::LINUX, None, costs::NO_PREEMPTION),
    ]
}

/// The saturation points of the three systems, and the ratios that the text gives. The paper publishes
/// no table of the curves.
pub(super) fn saturation(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let mix: crate::workload::Mix =
        "short: 99.5% 10us, long: 0.5% 10.006ms".parse().expect("two parts");
    let mut findings =
        study.each(&systems(), |&(name, policy, costs, dispatcher, preemption)| {
            let scenario = Scenario {
                costs,
                dispatcher,
                preemption,
                requests: study.requests(1_000_000),
                ..Scenario::ideal(policy, 20, mix.clone(), 0.5)
            };
            Ok(vec![study.saturation("ghost-6", name, &scenario, &P99, None)?])
        })?;
    let [shinjuku, ghost, cfs] = [0, 1, 2].map(|at| findings[at].value);
    let ratio = |name: &str, paper, value, note: &str| {
        Finding::value("ghost-6", name, "ratio", "x", Some(paper), value, note)
    };
    let headlines = [
        ratio("ghOSt / Shinjuku", 0.95, ghost / shinjuku, "within 5 % of Shinjuku's saturation"),
        ratio("CFS / Shinjuku", 0.7, cfs / shinjuku, "CFS saturates about 30 % sooner"),
    ];
    findings.extend(headlines);
    Ok(findings)
}
