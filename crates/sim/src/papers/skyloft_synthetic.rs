//! Skyloft, Fig. 7: rare long requests under a central queue, on 20 workers and a dispatcher.

use super::costs;
use super::finding::Finding;
use super::published::{self, Curve};
use super::skyloft_lcbe::SkyloftLcbe;
use super::study::{Metric, Study};
use crate::costs::{Dispatcher, Preemption};
use crate::sweep::Simulate;
use crate::{Load, Scenario, SimError, run, run_policy};
use heddle_core::Ns;

/// p99 over all requests. The paper's plot ends at 1 ms; its curves turn upwards at 200 us.
pub(super) const P99: Metric = Metric {
    name: "p99",
    unit: "ns",
    limit: 200_000.0,
    slo: "p99 <= 200us",
    of: |outcome| (outcome.p99.value, outcome.p99.half_width),
};

/// The common parameters of a family of curves. `base` is calibrated on the lowest load of the curve
/// named next to it.
struct Family {
    prefix: &'static str,
    costs: crate::costs::Costs,
    dispatcher: Option<Dispatcher>,
    preemption: Preemption,
    base: Ns,
}

const FAMILIES: [Family; 4] = [
    // skyloft-30us at 37,186/s: 7,067 ns.
    Family {
        prefix: "skyloft",
        costs: costs::USER_SWITCH,
        dispatcher: Some(costs::USER_DISPATCHER),
        preemption: costs::SKYLOFT_IPI,
        base: Ns(SKYLOFT_BASE),
    },
    // shinjuku-30us at 29,999/s: 6,225 ns.
    Family {
        prefix: "shinjuku",
        costs: costs::USER_SWITCH,
        dispatcher: Some(costs::USER_DISPATCHER),
        preemption: costs::SHINJUKU_IPI,
        base: Ns(SHINJUKU_BASE),
    },
    // ghost-30us at 29,970/s: 19,080 ns.
    Family {
        prefix: "ghost",
        costs: crate::costs::Costs { switch: Ns(0), wake: Ns(0), ..costs::LINUX },
        dispatcher: Some(costs::GHOST_AGENT),
        preemption: costs::GHOST_PREEMPTION,
        base: Ns(GHOST_BASE),
    },
    // cfs at 29,904/s: 14,845 ns.
    Family {
        prefix: "cfs",
        costs: costs::LINUX,
        dispatcher: None,
        preemption: costs::NO_PREEMPTION,
        base: Ns(CFS_BASE),
    },
];

const SKYLOFT_BASE: u64 = 1_908;
const SHINJUKU_BASE: u64 = 1_166;
const GHOST_BASE: u64 = 12_245;
const CFS_BASE: u64 = 8_374;

/// Returns the scenario of the published curve called `system`, without a load.
pub(super) fn scenario(study: &Study<'_>, curve: &Curve) -> Scenario {
    let family = FAMILIES.iter().find(|family| curve.system.starts_with(family.prefix));
    let family = family.expect("the test of this module finds a family for every curve");
    let policy = match curve.quantum() {
        Some(quantum) => format!("shinjuku:quantum={quantum}"),
        None => "fifo".into(),
    };
    let mix = "shinjuku-99.5-0.5".parse().expect("a preset");
    Scenario {
        costs: family.costs,
        dispatcher: family.dispatcher,
        preemption: family.preemption,
        base: family.base,
        requests: study.requests(1_000_000),
        ..Scenario::ideal(&policy, 20, mix, 0.5)
    }
}

/// Fig. 7a.
pub(super) fn single(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let curves = published::synthetic();
    let mut findings = study
        .each(&curves, |curve| study.follow("skyloft-7a", curve, &scenario(study, curve), &P99))?;
    let ratio = |pair, paper, note| Finding::ratio(&findings, "skyloft-7a", pair, paper, note);
    let headlines = [
        ratio(["cfs", "skyloft-30us"], 0.587, "maximum throughput without preemption, CFS"),
        ratio(["ghost-30us", "skyloft-30us"], 0.801, "maximum throughput of ghOSt"),
    ];
    findings.extend(headlines);
    Ok(findings)
}

/// Fig. 7b and 7c: 20 batch threads on what is left. Skyloft's artefact has rules of its own ([`SkyloftLcbe`]), and so
/// that its CPUs grow for as long as there, a run is 5 s, of which 3 count.
pub(super) fn with_batch(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let curves = published::synthetic_with_batch();
    let findings = study.each(&curves, |curve| {
        let policy = "shinjuku-shenango:quantum=30us,congestion=20us,check=5us".into();
        let scenario = Scenario { policy, batch: 20, ..scenario(study, curve) };
        let skyloft = |scenario: &Scenario| {
            let requests = study.requests((3.0 * scenario.rate()) as u64);
            run_policy(&Scenario { requests, warmup: 2.0 / 3.0, ..scenario.clone() }, SkyloftLcbe)
        };
        let simulate: Simulate<'_> =
            if curve.system.starts_with("skyloft") { &skyloft } else { &run };
        let mut findings = study.follow_by(simulate, "skyloft-7b", curve, &scenario, &P99)?;
        findings.extend(shares(study, simulate, curve, &scenario)?);
        Ok(findings)
    })?;
    Ok(with_headlines(findings))
}

/// The batch application's share of the CPUs at every published point that has one, below the CPUs'
/// capacity.
fn shares(
    study: &Study<'_>,
    simulate: Simulate<'_>,
    curve: &Curve,
    scenario: &Scenario,
) -> Result<Vec<Finding>, SimError> {
    let step = if study.quick { 4 } else { 1 };
    let points = curve.below(P99.limit).iter().step_by(step);
    let recorded: Vec<_> = points.filter_map(|p| Some((p.load, p.batch_share?))).collect();
    study.each(&recorded, |&(load, share)| {
        let outcome = simulate(&Scenario { load: Load::PerSecond(load), ..scenario.clone() })?;
        let (paper, value) = (Some(share), outcome.shares.batch);
        let found =
            Finding::value("skyloft-7c", &curve.system, "batch_share", "x", paper, value, "");
        Ok(vec![Finding { load: Some(load), ..found }])
    })
}

fn with_headlines(mut findings: Vec<Finding>) -> Vec<Finding> {
    const PAIR: [&str; 2] = ["skyloft-30us", "ghost-30us"];
    // At the load that both curves have and at which the paper's figure is read: 260,000/s.
    let p99_near = |system| {
        let far = |f: &&Finding| (f.load.unwrap_or_default() - 260_000.0).abs();
        let points = findings.iter().filter(|f| f.system == system && f.metric == "p99");
        points.min_by(|a, b| far(a).total_cmp(&far(b))).map_or(f64::NAN, |f| f.value)
    };
    let note = "maximum throughput beside a batch application";
    let most = Finding::ratio(&findings, "skyloft-7b", PAIR, 1.19, note);
    let p99 = Finding {
        metric: "ratio_p99",
        paper: Some(0.67),
        value: p99_near(PAIR[0]) / p99_near(PAIR[1]),
        note: "p99 near 260,000/s; the paper names no load".into(),
        ..most.clone()
    };
    findings.extend([most, p99]);
    findings
}
