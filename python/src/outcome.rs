//! The outcome of a run.

use crate::estimate::Estimate;
use crate::part::{self, Buckets};
use crate::scenario::Scenario;
use heddle_sim::PartOutcome;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The outcome of a run.
///
/// Times are in ns. A *part* is one of the kinds of request that the mix names, or ``"all"`` for all of them together.
#[pyclass(frozen, eq, module = "heddle_sim")]
#[derive(Clone, PartialEq)]
pub struct Outcome {
    outcome: heddle_sim::Outcome,
    scenario: Scenario,
}

impl Outcome {
    /// Creates the outcome of running `scenario`.
    pub fn new(outcome: heddle_sim::Outcome, scenario: Scenario) -> Outcome {
        Outcome { outcome, scenario }
    }

    fn part(&self, name: &str) -> PyResult<&PartOutcome> {
        let all = std::iter::once(&self.outcome.all);
        all.chain(&self.outcome.parts).find(|part| part.name == name).ok_or_else(|| {
            let parts = self.parts().join(", ");
            PyKeyError::new_err(format!("no part `{name}`; expected one of all, {parts}"))
        })
    }
}

#[pymethods]
impl Outcome {
    /// The scenario that was run.
    #[getter]
    fn scenario(&self) -> Scenario {
        self.scenario.clone()
    }

    /// The names of the mix's parts, without ``"all"``.
    #[getter]
    fn parts(&self) -> Vec<String> {
        self.outcome.parts.iter().map(|part| part.name.clone()).collect()
    }

    /// Requests per second that arrive, in the long run.
    #[getter]
    fn offered(&self) -> f64 {
        self.outcome.offered
    }

    /// Requests done per second, over the whole run.
    #[getter]
    fn throughput(&self) -> f64 {
        self.outcome.throughput
    }

    /// The mean response time of all requests.
    #[getter]
    fn mean(&self) -> Estimate {
        self.outcome.mean.into()
    }

    /// The response time that 99 % of all requests do not exceed.
    #[getter]
    fn p99(&self) -> Estimate {
        self.outcome.p99.into()
    }

    /// The response time that 99.9 % of all requests do not exceed.
    #[getter]
    fn p999(&self) -> Estimate {
        self.outcome.p999.into()
    }

    /// The slowdown (response over service time) that 99.9 % of all requests do not exceed.
    #[getter]
    fn slowdown_p999(&self) -> Estimate {
        self.outcome.slowdown_p999.into()
    }

    /// Simulated time.
    #[getter]
    fn time_ns(&self) -> u64 {
        self.outcome.time.0
    }

    /// Why the numbers must not be quoted: the run has no steady state. None if they may.
    #[getter]
    fn unstable(&self) -> Option<String> {
        self.outcome.unstable.map(|why| why.to_string())
    }

    /// Where the CPUs' time went: the shares of ``requests``, ``batch``, ``overhead`` and ``idle``, which sum to 1.
    #[getter]
    fn shares<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shares = &self.outcome.shares;
        let named = [
            ("requests", shares.requests),
            ("batch", shares.batch),
            ("overhead", shares.overhead),
            ("idle", shares.idle),
        ];
        dict(py, named)
    }

    /// How often things happened, warm-up included: ``arrivals``, ``starts``, ``done``, ``preemptions`` and more.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = &self.outcome.counts;
        let named = [
            ("arrivals", counts.arrivals),
            ("starts", counts.starts),
            ("done", counts.done),
            ("preemptions", counts.preemptions),
            ("interrupts", counts.interrupts),
            ("steals", counts.steals),
            ("migrations", counts.migrations),
            ("app_switches", counts.app_switches),
        ];
        dict(py, named)
    }

    /// The response time that a share ``q`` (0 to 1) of a part's requests do not exceed; at most 0.1 %
    /// above the true one.
    fn quantile(&self, part: &str, q: f64) -> PyResult<u64> {
        Ok(self.part(part)?.response.percentile(part::percent(q)?).0)
    }

    /// The slowdown that a share ``q`` (0 to 1) of a part's requests do not exceed.
    fn slowdown_quantile(&self, part: &str, q: f64) -> PyResult<f64> {
        Ok(self.part(part)?.slowdown.percentile(part::percent(q)?))
    }

    /// The response times of a part, as two arrays: the longest time of each bucket, ascending, and its
    /// number of requests. Their cumulative sums give every quantile.
    #[pyo3(signature = (part = "all"))]
    fn histogram<'py>(&self, py: Python<'py>, part: &str) -> PyResult<Buckets<'py, u64>> {
        Ok(part::latencies(py, &self.part(part)?.response))
    }

    /// The slowdowns of a part, as two arrays like those of :meth:`histogram`.
    #[pyo3(signature = (part = "all"))]
    fn slowdown_histogram<'py>(&self, py: Python<'py>, part: &str) -> PyResult<Buckets<'py, f64>> {
        Ok(part::slowdowns(py, &self.part(part)?.slowdown))
    }

    /// The times from arrival until a request first ran, as two arrays like those of :meth:`histogram`.
    fn wait_histogram<'py>(&self, py: Python<'py>) -> Buckets<'py, u64> {
        part::latencies(py, &self.outcome.wait)
    }

    /// The usual numbers of a part by name: ``count``, ``mean_ns``, ``p50_ns`` to ``p999_ns``,
    /// ``max_ns`` and the same for the slowdown.
    #[pyo3(signature = (part = "all"))]
    fn summary<'py>(&self, py: Python<'py>, part: &str) -> PyResult<Bound<'py, PyDict>> {
        part::summary(py, self.part(part)?)
    }

    /// Everything except the histograms, as dicts, lists, str and numbers.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        all.set_item("scenario", self.scenario.to_toml())?;
        all.set_item("offered_per_s", self.offered())?;
        all.set_item("throughput_per_s", self.throughput())?;
        for (name, estimate) in [
            ("mean_ns", self.mean()),
            ("p99_ns", self.p99()),
            ("p999_ns", self.p999()),
            ("slowdown_p999", self.slowdown_p999()),
        ] {
            all.set_item(name, estimate.to_dict(py)?)?;
        }
        all.set_item("time_ns", self.time_ns())?;
        all.set_item("unstable", self.unstable())?;
        all.set_item("shares", self.shares(py)?)?;
        all.set_item("counts", self.counts(py)?)?;
        let parts = PyDict::new(py);
        for part in std::iter::once(&self.outcome.all).chain(&self.outcome.parts) {
            parts.set_item(&part.name, part::summary(py, part)?)?;
        }
        all.set_item("parts", parts)?;
        Ok(all)
    }

    fn __repr__(&self) -> String {
        let heddle_sim::Outcome { throughput, p99, unstable, .. } = &self.outcome;
        let policy = self.scenario.policy();
        match unstable {
            Some(why) => format!("<Outcome of {policy}: {why}>"),
            None => format!(
                "<Outcome of {policy}: {throughput:.0} requests/s, p99 {:.0} ns>",
                p99.value
            ),
        }
    }
}

/// A dict of `named`.
fn dict<'py, T: IntoPyObject<'py>, const N: usize>(
    py: Python<'py>,
    named: [(&str, T); N],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    named.into_iter().try_for_each(|(name, value)| dict.set_item(name, value))?;
    Ok(dict)
}
