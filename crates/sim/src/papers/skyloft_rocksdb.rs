//! Skyloft, Fig. 8b: as many scans as gets, under work stealing; a timer on each of 14 workers.
//!
//! Packets are spread over the workers by a hash (section 3.5) and stay there until their worker, or an
//! idle one that steals, takes them. We also tried ticks at multiples of the quantum, regardless of
//! when a task begins: no value changes by more than 5 %.

use super::costs;
use super::finding::Finding;
use super::published::{self, Curve};
use super::study::{Metric, Study};
use crate::costs::{Costs, Preemption, PreemptionSource};
use crate::{Scenario, SimError, Steer, Steering};
use heddle_core::Ns;

/// p99.9 of slowdown, up to the paper's target of 50.
const SLOWDOWN: Metric = Metric {
    name: "slowdown_p99.9",
    unit: "x",
    limit: 50.0,
    slo: "p99.9 slowdown <= 50",
    of: |outcome| (outcome.slowdown_p999.value, outcome.slowdown_p999.half_width),
};

/// The client, both network stacks and the wire. Calibrated on the least value of `skyloft_nopre`, 18.1
/// at 12,437/s: no constant can lie below it. Not on its lowest load, where every published curve is
/// higher than later on (26.0).
const SKYLOFT_BASE: Ns = Ns(16_050);

/// The same on the least value of `shenango`, 38.3 at 7,468/s.
const SHENANGO_BASE: Ns = Ns(35_250);

/// Flows over which the client spreads its requests: enough to make the hash even. The paper gives no
/// number.
const FLOWS: u32 = 1_024;

/// User timer interrupts, 642 cycles of 2.0 GHz; user IPIs of a timer core for `utimer` (Skyloft, Table
/// 6). Neither knows whether a task waits.
fn preemption(curve: &Curve) -> Preemption {
    let name = match () {
        () if curve.quantum().is_none() => "none",
        () if is_utimer(curve) => "uintr",
        () => "uintr-timer",
    };
    let named = Preemption::named(name).expect("it is in the table");
    let skip = named.by == PreemptionSource::Disabled;
    Preemption { skip, ..named }
}

fn is_utimer(curve: &Curve) -> bool {
    curve.system.ends_with("utimer")
}

pub(super) fn scenario(study: &Study<'_>, curve: &Curve) -> Scenario {
    let policy = match curve.quantum() {
        Some(quantum) => format!("work-stealing:quantum={quantum}"),
        None => "work-stealing".into(),
    };
    let switch = Ns(37) + costs::SWITCH_SPINNING;
    let mix = "rocksdb-50-50".parse().expect("a preset");
    let workers = if is_utimer(curve) { 13 } else { 14 };
    Scenario {
        costs: Costs { switch, ..costs::USER_SWITCH },
        preemption: preemption(curve),
        steering: Steering { to: Steer::Hash { flows: FLOWS }, binds: true },
        base: if curve.system == "shenango" { SHENANGO_BASE } else { SKYLOFT_BASE },
        requests: study.requests(300_000),
        ..Scenario::ideal(&policy, workers, mix, 0.5)
    }
}

/// Fig. 8b.
pub(super) fn rocksdb(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let curves = published::rocksdb();
    let mut findings = study.each(&curves, |curve| {
        study.follow("skyloft-8b", curve, &scenario(study, curve), &SLOWDOWN)
    })?;
    let ratio = |pair, paper, note| Finding::ratio(&findings, "skyloft-8b", pair, paper, note);
    let headlines = [
        ratio(["skyloft_5us", "shenango"], 1.9, "load at a slowdown of 50"),
        ratio(["skyloft_5us_utimer", "skyloft_5us"], 0.87, "a timer core instead of local timers"),
    ];
    findings.extend(headlines);
    Ok(findings)
}
