//! SKQ, Fig. 6 to 8: event-loop threads of services with unequal requests, fixed connections against
//! the hybrid policy, 12 threads.
//!
//! The paper publishes no table of the curves; its text has the headlines. Nor does it give the cost of
//! a request apart from its service: for the application server 5 us are assumed (a request of
//! Memcached takes 15,000 cycles in total, section 4.1: 7 us), for RocksDB nothing, since its times
//! come from throughputs that include it.

use super::finding::Finding;
use super::study::Study;
use crate::events::{Case, scenario};
use crate::{Load, Scenario, SimError, run};
use heddle_core::Ns;

/// Fixed connections, best of two without and with stealing, and the hybrid policy.
const SYSTEMS: [(&str, &str); 4] = [
    ("vanilla", "queue-affinity"),
    ("best2", "best-of-two"),
    ("best2_ws", "hybrid:affinity=none,choices=1"),
    ("hybrid", "hybrid"),
];

/// The service of a figure.
struct Figure {
    name: &'static str,
    case: &'static str,
    requests: u64,
    /// The cost of a request apart from its service.
    switch: Ns,
    /// Low latency, as the paper's text defines it.
    slo: &'static str,
}

const APPLICATION: Figure = Figure {
    name: "skq-6",
    case: "gis",
    requests: 1_000_000,
    switch: Ns(5_000),
    slo: "p99 <= 280us",
};

/// Only light requests: 3 % of all are SEEKs of 2.65 ms, so no p99 of all requests could be the 263 us
/// of the text.
const ROCKSDB: Figure = Figure {
    name: "skq-7",
    case: "zippydb",
    requests: 400_000,
    switch: Ns(0),
    slo: "light p99 <= 280us",
};

impl Figure {
    fn scenario(&self, study: &Study<'_>, policy: &str) -> Scenario {
        let case = Case::find(self.case).expect("one of the cases");
        let mut scenario = scenario(case, policy, 12, 0.5, 1);
        scenario.costs.switch = self.switch;
        Scenario { requests: study.requests(self.requests), ..scenario }
    }

    /// The highest load with low latency of every system, and how much more of it `hybrid` has than
    /// `vanilla`.
    fn low_latency(
        &self,
        study: &Study<'_>,
        paper: [Option<f64>; 4],
        ratio: f64,
    ) -> Result<Vec<Finding>, SimError> {
        let systems: Vec<_> = SYSTEMS.into_iter().zip(paper).collect();
        let mut findings = study.each(&systems, |&((name, policy), paper)| {
            let scenario = self.scenario(study, policy);
            let metric = super::study::Metric {
                name: "p99",
                unit: "ns",
                limit: f64::INFINITY,
                slo: self.slo,
                of: |outcome| (outcome.p99.value, outcome.p99.half_width),
            };
            Ok(vec![study.saturation(self.name, name, &scenario, &metric, paper)?])
        })?;
        let note = format!("load with {}", self.slo);
        findings.push(Finding::ratio(&findings, self.name, ["hybrid", "vanilla"], ratio, &note));
        Ok(findings)
    }

    /// How much longer the tail of `vanilla` is than that of `hybrid` at `rate`, and how unevenly their
    /// threads are busy.
    fn gap(
        &self,
        study: &Study<'_>,
        rate: f64,
        paper: f64,
        imbalance: [Option<f64>; 2],
    ) -> Result<Vec<Finding>, SimError> {
        let at = |policy: &str| {
            run(&Scenario { load: Load::PerSecond(rate), ..self.scenario(study, policy) })
        };
        let (vanilla, hybrid) = (at("queue-affinity")?, at("hybrid")?);
        let tail = |outcome: &crate::Outcome| outcome.parts[0].response.p99().0 as f64;
        let note = format!("light p99 at {rate:.0}/s");
        let found = |system: &str, metric, paper, value, note: &str| {
            Finding::value(self.name, system, metric, "x", paper, value, note)
        };
        Ok(vec![
            found(
                "vanilla / hybrid",
                "ratio_p99",
                Some(paper),
                tail(&vanilla) / tail(&hybrid),
                &note,
            ),
            found(
                "vanilla",
                "imbalance",
                imbalance[0],
                vanilla.imbalance,
                "busiest and least busy thread",
            ),
            found(
                "hybrid",
                "imbalance",
                imbalance[1],
                hybrid.imbalance,
                "busiest and least busy thread",
            ),
        ])
    }
}

/// Fig. 6: the application server, where each connection has one weight.
pub(super) fn application(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let mut findings = APPLICATION.low_latency(study, [None; 4], 3.0)?;
    findings.extend(APPLICATION.gap(study, 460_000.0, 9.9, [Some(0.461), Some(0.014)])?);
    Ok(findings)
}

/// Fig. 7 and 8: RocksDB under ZippyDB's mix.
pub(super) fn rocksdb(study: &Study<'_>) -> Result<Vec<Finding>, SimError> {
    let paper = [Some(2_300.0), None, None, Some(63_000.0)];
    let mut findings = ROCKSDB.low_latency(study, paper, 27.4)?;
    findings.extend(ROCKSDB.gap(study, 63_000.0, 1_022.0, [None; 2])?);
    Ok(findings)
}
