//! A measured value and its uncertainty.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A measured value and its uncertainty.
///
/// Attributes
/// ----------
/// value : float
///     The value over all measured requests.
/// half_width : float
///     Half of the 95 % confidence interval's width, from the spread between batches of consecutive
///     requests; infinite if there are too few requests.
#[pyclass(frozen, eq, module = "heddle_sim")]
#[derive(Clone, PartialEq)]
pub struct Estimate {
    /// The value over all measured requests.
    #[pyo3(get)]
    value: f64,
    /// Half of the 95 % confidence interval's width.
    #[pyo3(get)]
    half_width: f64,
}

#[pymethods]
impl Estimate {
    /// The 95 % confidence interval, as ``(low, high)``.
    #[getter]
    fn interval(&self) -> (f64, f64) {
        (self.value - self.half_width, self.value + self.half_width)
    }

    /// Returns the two numbers by name.
    pub fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let numbers = PyDict::new(py);
        numbers.set_item("value", self.value)?;
        numbers.set_item("half_width", self.half_width)?;
        Ok(numbers)
    }

    fn __float__(&self) -> f64 {
        self.value
    }

    fn __repr__(&self) -> String {
        format!("Estimate(value={:?}, half_width={:?})", self.value, self.half_width)
    }
}

impl From<heddle_sim::Estimate> for Estimate {
    fn from(heddle_sim::Estimate { value, half_width }: heddle_sim::Estimate) -> Estimate {
        Estimate { value, half_width }
    }
}
