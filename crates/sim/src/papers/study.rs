//! Runs the scenarios of a paper.

use super::finding::Finding;
use super::published::Curve;
use crate::sweep::{Pool, Simulate, Slo, capacity_by};
use crate::{Load, Outcome, Scenario, SimError, run};

/// The settings for running a paper's scenarios.
pub(super) struct Study<'a> {
    pub quick: bool,
    pub pool: &'a Pool<'a>,
}

/// What a curve shows and where it ends.
pub(super) struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// A curve is saturated once it exceeds this; next to it, the same limit in words for the
    /// simulator.
    pub limit: f64,
    pub slo: &'static str,
    pub of: fn(&Outcome) -> (f64, f64),
}

impl Study<'_> {
    /// Returns how many requests to run; fewer if quick.
    pub fn requests(&self, requests: u64) -> u64 {
        if self.quick { requests / 10 } else { requests }
    }

    /// Returns the published points of `curve` below saturation, each next to the result of `scenario`,
    /// and both saturations.
    pub fn follow(
        &self,
        figure: &'static str,
        curve: &Curve,
        scenario: &Scenario,
        metric: &Metric,
    ) -> Result<Vec<Finding>, SimError> {
        self.follow_by(&run, figure, curve, scenario, metric)
    }

    /// [`follow`](Study::follow), with runs made by `simulate`.
    pub fn follow_by(
        &self,
        simulate: Simulate<'_>,
        figure: &'static str,
        curve: &Curve,
        scenario: &Scenario,
        metric: &Metric,
    ) -> Result<Vec<Finding>, SimError> {
        let step = if self.quick { 4 } else { 1 };
        let points: Vec<_> = curve.below(metric.limit).iter().step_by(step).collect();
        let mut findings = self.pool.map(&points, |_, point| {
            let scenario = Scenario { load: Load::PerSecond(point.load), ..scenario.clone() };
            self.pool.begin(&format!("{} at {:.0}/s", curve.system, point.load))?;
            Ok(Finding::point(figure, &curve.system, metric, point, &simulate(&scenario)?))
        })?;
        let (system, paper) = (&curve.system, curve.saturation(metric.limit));
        findings.push(self.saturation_by(simulate, figure, system, scenario, metric, paper)?);
        Ok(findings)
    }

    /// Returns the highest load at which `scenario` keeps the metric's limit, next to the paper's.
    pub fn saturation(
        &self,
        figure: &'static str,
        system: &str,
        scenario: &Scenario,
        metric: &Metric,
        paper: Option<f64>,
    ) -> Result<Finding, SimError> {
        self.saturation_by(&run, figure, system, scenario, metric, paper)
    }

    fn saturation_by(
        &self,
        simulate: Simulate<'_>,
        figure: &'static str,
        system: &str,
        scenario: &Scenario,
        metric: &Metric,
        paper: Option<f64>,
    ) -> Result<Finding, SimError> {
        let rate = self.highest_by(simulate, scenario, metric.slo)?;
        let note = format!("highest load with {}", metric.slo);
        Ok(Finding::value(figure, system, "saturation", "1/s", paper, rate, &note))
    }

    /// Returns the requests per second at which `scenario` still keeps `slo`.
    pub fn highest(&self, scenario: &Scenario, slo: &str) -> Result<f64, SimError> {
        self.highest_by(&run, scenario, slo)
    }

    fn highest_by(
        &self,
        simulate: Simulate<'_>,
        scenario: &Scenario,
        slo: &str,
    ) -> Result<f64, SimError> {
        let slo: Slo = slo.parse().expect("the objectives of this module are well formed");
        let tolerance = if self.quick { 0.03 } else { 0.005 };
        Ok(capacity_by(simulate, scenario, &slo, tolerance, self.pool)?.rate)
    }

    /// Does `work` for each of `items` on the pool's threads; returns the findings in the order of the
    /// items.
    pub fn each<T: Sync>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<Vec<Finding>, SimError> + Sync,
    ) -> Result<Vec<Finding>, SimError> {
        Ok(self.pool.map(items, |_, item| work(item))?.concat())
    }
}
