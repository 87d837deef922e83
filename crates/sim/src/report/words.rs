//! Numbers and lines shared by tables and pages.

use crate::{Outcome, Scenario};
use heddle_core::Ns;
use heddle_metrics::human;

/// Returns the machine, the load and how requests are preempted, on one line.
pub(super) fn conditions(scenario: &Scenario) -> String {
    let load = match scenario.arrivals.is_open() {
        true => format!(
            " at {:.1} % of the CPUs' time, {}",
            scenario.rate() / scenario.capacity() * 100.0,
            human(scenario.rate(), "1/s")
        ),
        false => String::new(),
    };
    setting(scenario) + &load
}

/// Returns the same without the load.
pub(super) fn setting(scenario: &Scenario) -> String {
    format!("{} CPUs, {}, {}", scenario.machine.cpus, scenario.arrivals, scenario.mix)
}

pub(super) fn time(ns: Ns) -> String {
    human(ns.0 as f64, "ns")
}

/// Returns where the CPUs' time went, on one line.
pub(super) fn shares(outcome: &Outcome) -> String {
    let shares = &outcome.shares;
    let parts = [
        ("requests", shares.requests),
        ("batch", shares.batch),
        ("overhead", shares.overhead),
        ("idle", shares.idle),
    ];
    let shown = parts.into_iter().filter(|&(name, share)| share > 0.0 || name != "batch");
    shown
        .map(|(name, share)| format!("{name} {:.1} %", share * 100.0))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns how often things happened per request, on one line.
pub(super) fn counts(outcome: &Outcome) -> String {
    let counts = &outcome.counts;
    let parts = [
        ("starts", counts.starts),
        ("preemptions", counts.preemptions),
        ("interrupts", counts.interrupts),
        ("steals", counts.steals),
        ("migrations", counts.migrations),
        ("application switches", counts.app_switches),
    ];
    let shown = parts.into_iter().filter(|&(_, count)| count > 0);
    let each = |count: u64| count as f64 / counts.arrivals.max(1) as f64;
    shown.map(|(name, count)| format!("{:.3} {name}", each(count))).collect::<Vec<_>>().join(", ")
}
