//! The results of a part of the requests, as Python numbers.

use heddle_core::Ns;
use heddle_metrics::{Histogram, Slowdown};
use heddle_sim::PartOutcome;
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Ends of buckets, and how many samples each holds.
pub type Buckets<'py, T> = (Bound<'py, PyArray1<T>>, Bound<'py, PyArray1<u64>>);

/// The buckets of a latency histogram, in ns.
pub fn latencies<'py>(py: Python<'py>, histogram: &Histogram) -> Buckets<'py, u64> {
    let (ends, counts) = histogram.buckets().map(|(Ns(end), count)| (end, count)).unzip();
    (PyArray1::from_vec(py, ends), PyArray1::from_vec(py, counts))
}

/// The buckets of a histogram of slowdowns.
pub fn slowdowns<'py>(py: Python<'py>, slowdown: &Slowdown) -> Buckets<'py, f64> {
    let (ends, counts) = slowdown.buckets().unzip();
    (PyArray1::from_vec(py, ends), PyArray1::from_vec(py, counts))
}

/// Converts a quantile to the percentage that histograms take.
///
/// # Errors
/// `ValueError` if it is not a quantile.
pub fn percent(q: f64) -> PyResult<f64> {
    match (0.0..=1.0).contains(&q) {
        true => Ok(q * 100.0),
        false => Err(PyValueError::new_err(format!("a quantile of {q}; expected 0 to 1"))),
    }
}

const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9)];

/// Returns the usual numbers of `part`, by name.
pub fn summary<'py>(py: Python<'py>, part: &PartOutcome) -> PyResult<Bound<'py, PyDict>> {
    let PartOutcome { response, slowdown, .. } = part;
    let numbers = PyDict::new(py);
    numbers.set_item("count", response.count())?;
    numbers.set_item("mean_ns", response.mean().0)?;
    for (name, percent) in PERCENTILES {
        numbers.set_item(format!("{name}_ns"), response.percentile(percent).0)?;
    }
    numbers.set_item("max_ns", response.max().0)?;
    numbers.set_item("slowdown_mean", slowdown.mean())?;
    for (name, percent) in PERCENTILES {
        numbers.set_item(format!("slowdown_{name}"), slowdown.percentile(percent))?;
    }
    Ok(numbers)
}
